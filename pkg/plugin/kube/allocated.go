package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// AllocatedQuery requests one page of the cluster's ResourceClaims.
type AllocatedQuery struct {
	// Driver is the driver's name. Devices are the devices to report, if they are allocated.
	Driver  string
	Devices map[gpu.PoolDevice]bool
	// Node selects all devices of the node's pools, including devices with admin access; empty: only Devices are reported.
	Node string
	// Continue is the continue token of the page, empty for the first; Limit is its maximum number of claims.
	Continue string
	Limit    int64
}

// AllocatedPage is the result for one page.
type AllocatedPage struct {
	// Devices are the devices of the query that are allocated to claims of the page, prepared or not. Allocations with admin access count only
	// for the devices of a node.
	Devices map[gpu.PoolDevice]bool
	// Continue is the continue token of the next page; empty after the last.
	Continue string
	// Remaining is the number of claims on the next pages; zero also if the API server does not report it.
	Remaining int64
}

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	// protobufMagic precedes each encoded object.
	protobufMagic = "k8s\x00"
	// maxHeader exceeds the size of the list's metadata, and maxResult the size of an allocation result, in bytes.
	maxHeader = 64 << 10
	maxResult = 1 << 20
)

// The protobuf field numbers from the list to the allocation results, as in generated.proto of the API packages. They never change.
const (
	envelopeType, envelopeContent = 1, 2 // runtime.Unknown
	listMeta, listItems           = 1, 2 // ResourceClaimList
	claimStatus                   = 3    // ResourceClaim
	statusAllocation              = 1    // ResourceClaimStatus
	allocationDevices             = 1    // AllocationResult
	devicesResults                = 1    // DeviceAllocationResult
)

// Allocated reads one page. All pages of a list are a consistent snapshot that is not older than the first request. Tenants decide how
// large claims are, so the response is decoded as a stream and only the requested devices are kept: memory does not depend on claims. It
// requires a real client of the API server. If apierrors.IsResourceExpired is true for the error, the continue token has expired: restart
// with the first page.
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
		return nil, fmt.Errorf("listing claims: decoding the API server's response: %w", err)
	}
	return page, nil
}

// read collects the devices of the query from an encoded ResourceClaimList.
func (p *AllocatedPage) read(stream io.Reader, q AllocatedQuery) error {
	response := &wireMessage{stream: bufio.NewReaderSize(stream, 32<<10), left: math.MaxInt64}
	magic := make([]byte, len(protobufMagic))
	if _, err := io.ReadFull(response.stream, magic); err != nil {
		return truncated(err)
	}
	if string(magic) != protobufMagic {
		return errors.New("not in the Kubernetes protobuf format")
	}
	known := false
	return p.envelope(response, func(number int, content *wireMessage) error {
		switch number {
		case envelopeType:
			known = true
			return isClaimList(content)
		case envelopeContent:
			if !known {
				return fmt.Errorf("%w: content before its type", errWire)
			}
			return content.fields(func(number int, content *wireMessage) error { return p.list(number, content, q) })
		default:
			return nil
		}
	})
}

// envelope visits the fields of the outermost message, which ends with the stream and must not be empty.
func (p *AllocatedPage) envelope(response *wireMessage, visit func(int, *wireMessage) error) error {
	hasContent := false
	for {
		if _, err := response.stream.Peek(1); errors.Is(err, io.EOF) && hasContent {
			return nil
		} else if err != nil {
			return truncated(err)
		}
		one := func(number int, content *wireMessage) error {
			hasContent = hasContent || number == envelopeContent
			return visit(number, content)
		}
		if err := response.field(one); err != nil {
			return err
		}
	}
}

// isClaimList checks that the content's type is ResourceClaimList.
func isClaimList(content *wireMessage) error {
	raw, err := content.all(maxHeader)
	if err != nil {
		return err
	}
	var found runtime.TypeMeta
	if err := found.Unmarshal(raw); err != nil {
		return fmt.Errorf("%w: %w", errWire, err)
	}
	if found.Kind != "ResourceClaimList" || found.APIVersion != resourceapi.SchemeGroupVersion.String() {
		return fmt.Errorf("got a %s of %s, expected a ResourceClaimList of %s", found.Kind, found.APIVersion, resourceapi.SchemeGroupVersion)
	}
	return nil
}

// list reads one field of the ResourceClaimList.
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
	if r.Driver != q.Driver {
		return nil
	}
	ofNode := q.Node != "" && (r.Pool == q.Node || strings.HasPrefix(r.Pool, q.Node+"/"))
	if admin := r.AdminAccess != nil && *r.AdminAccess; ofNode || !admin && q.Devices[device] {
		p.Devices[device] = true
	}
	return nil
}
