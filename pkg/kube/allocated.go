package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// AllocatedQuery asks for one page of the cluster's ResourceClaims.
type AllocatedQuery struct {
	// Driver is the driver's name, and Devices are the devices of it that are looked for.
	Driver  string
	Devices map[gpu.PoolDevice]bool
	// Continue is where the page begins, empty for the first one; Limit is how many claims it has at most.
	Continue string
	Limit    int64
}

// AllocatedPage is the answer.
type AllocatedPage struct {
	// Devices are those that claims of the page have been allocated, prepared or not. Admin access holds nothing and is left out.
	Devices map[gpu.PoolDevice]bool
	// Continue is where the next page begins; empty: this was the last one.
	Continue string
	// Remaining is how many claims the next pages have; zero also where the API server does not say.
	Remaining int64
}

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	// protobufMagic comes before each object.
	protobufMagic = "k8s\x00"
	// maxHeader is more than the list's own metadata take, and maxResult more than one allocation result can be, in bytes.
	maxHeader = 64 << 10
	maxResult = 1 << 20
)

// The numbers of the fields on the way to the results, as in generated.proto of the API packages, where numbers never change.
const (
	envelopeType, envelopeContent = 1, 2 // runtime.Unknown
	listMeta, listItems           = 1, 2 // ResourceClaimList
	claimStatus                   = 3    // ResourceClaim
	statusAllocation              = 1    // ResourceClaimStatus
	allocationDevices             = 1    // AllocationResult
	devicesResults                = 1    // DeviceAllocationResult
)

// Allocated reads one page. The pages of a list are of one moment; no cache answers that is older than the first question. Tenants decide
// how large claims are, so the answer is read as it comes, and nothing of it is kept but the devices that are looked for: memory does not
// depend on claims. It needs the API server's real client. An expired Continue is an error that apierrors.IsResourceExpired knows; begin
// with the first page then.
func (c Claims) Allocated(ctx context.Context, q AllocatedQuery) (*AllocatedPage, error) {
	stream, err := c.Client.ResourceV1().RESTClient().Get().Resource("resourceclaims").
		VersionedParams(&metav1.ListOptions{Limit: q.Limit, Continue: q.Continue}, scheme.ParameterCodec).
		SetHeader("Accept", protobufType).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing claims: %w", err)
	}
	defer stream.Close()
	page := &AllocatedPage{Devices: map[gpu.PoolDevice]bool{}}
	if err := page.read(stream, q); err != nil {
		return nil, fmt.Errorf("listing claims: reading the API server's answer: %w", err)
	}
	return page, nil
}

// read takes what is looked for from a ResourceClaimList.
func (p *AllocatedPage) read(stream io.Reader, q AllocatedQuery) error {
	answer := &wireMessage{stream: bufio.NewReaderSize(stream, 32<<10), left: math.MaxInt64}
	magic := make([]byte, len(protobufMagic))
	if _, err := io.ReadFull(answer.stream, magic); err != nil {
		return cut(err)
	}
	if string(magic) != protobufMagic {
		return errors.New("it is no protobuf of Kubernetes")
	}
	known := false
	return p.envelope(answer, func(number int, content *wireMessage) error {
		switch number {
		case envelopeType:
			known = true
			return isClaimList(content)
		case envelopeContent:
			if !known {
				return fmt.Errorf("%w: it does not say what it is", errWire)
			}
			return content.fields(func(number int, content *wireMessage) error { return p.list(number, content, q) })
		default:
			return nil
		}
	})
}

// envelope visits the fields of the outermost message, which ends with the stream and must have a content.
func (p *AllocatedPage) envelope(answer *wireMessage, visit func(int, *wireMessage) error) error {
	whole := false
	for {
		if _, err := answer.stream.Peek(1); errors.Is(err, io.EOF) && whole {
			return nil
		} else if err != nil {
			return cut(err)
		}
		one := func(number int, content *wireMessage) error {
			whole = whole || number == envelopeContent
			return visit(number, content)
		}
		if err := answer.field(one); err != nil {
			return err
		}
	}
}

// isClaimList reads the type of the content.
func isClaimList(content *wireMessage) error {
	raw, err := content.all(maxHeader)
	if err != nil {
		return err
	}
	var what runtime.TypeMeta
	if err := what.Unmarshal(raw); err != nil {
		return fmt.Errorf("%w: %w", errWire, err)
	}
	if what.Kind != "ResourceClaimList" || what.APIVersion != resourceapi.SchemeGroupVersion.String() {
		return fmt.Errorf("it is a %s of %s and not a ResourceClaimList of %s", what.Kind, what.APIVersion, resourceapi.SchemeGroupVersion)
	}
	return nil
}

// list reads a field of the list.
func (p *AllocatedPage) list(number int, content *wireMessage, q AllocatedQuery) error {
	switch number {
	case listMeta:
		raw, err := content.all(maxHeader)
		if err != nil {
			return err
		}
		var meta metav1.ListMeta
		if err := meta.Unmarshal(raw); err != nil {
			return fmt.Errorf("%w: %w", errWire, err)
		}
		p.Continue = meta.Continue
		if meta.RemainingItemCount != nil {
			p.Remaining = *meta.RemainingItemCount
		}
		return nil
	case listItems:
		return content.descend(func(content *wireMessage) error { return p.result(content, q) },
			claimStatus, statusAllocation, allocationDevices, devicesResults)
	default:
		return nil
	}
}

// result reads one allocation result.
func (p *AllocatedPage) result(content *wireMessage, q AllocatedQuery) error {
	raw, err := content.all(maxResult)
	if err != nil {
		return err
	}
	var r resourceapi.DeviceRequestAllocationResult
	if err := r.Unmarshal(raw); err != nil {
		return fmt.Errorf("%w: %w", errWire, err)
	}
	device := gpu.PoolDevice{Pool: r.Pool, Device: gpu.DeviceName(r.Device)}
	if admin := r.AdminAccess != nil && *r.AdminAccess; r.Driver == q.Driver && !admin && q.Devices[device] {
		p.Devices[device] = true
	}
	return nil
}
