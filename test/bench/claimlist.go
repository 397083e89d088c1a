package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/kube"
)

// ClaimList is what it takes to find out which devices of a node are allocated in a cluster whose tenants make claims as large as the API
// server takes them.
type ClaimList struct {
	// Claims is how many there are, Bytes what the API server sends of them.
	Claims int
	Bytes  int64
	// Peak is the most that the process which read them had in memory besides its files, in bytes.
	Peak int64
}

const (
	worstClaims = 1000
	worstPage   = 250
	// claimListBudget is a quarter of what the chart lets a plugin have.
	claimListBudget = 64 << 20
	// worstConfigs and worstParameters are the API's limits: configurations of a claim, and bytes of one of them.
	worstConfigs, worstParameters = 32, 10 << 10
	worstAnnotations              = 256 << 10
)

// worstClaim is a claim that has as much as the API server takes of everything, but for what no object may have in all: 1.5 MiB.
func worstClaim() *resourceapi.ResourceClaim {
	raw := runtime.RawExtension{Raw: []byte(`{"x":"` + strings.Repeat("x", worstParameters-8) + `"}`)}
	opaque := resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "gpu.example.com", Parameters: raw}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "tenant", Name: "claim", Annotations: map[string]string{"a": strings.Repeat("y", worstAnnotations-1)},
	}}
	allocation := &resourceapi.AllocationResult{}
	for range worstConfigs {
		claim.Spec.Devices.Config = append(claim.Spec.Devices.Config, resourceapi.DeviceClaimConfiguration{DeviceConfiguration: opaque})
		allocation.Devices.Config = append(allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{DeviceConfiguration: opaque})
		allocation.Devices.Results = append(allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: "r", Driver: "gpu.example.com", Pool: "n0", Device: "gpu-0",
		})
		claim.Status.Devices = append(claim.Status.Devices, resourceapi.AllocatedDeviceStatus{
			Driver: "gpu.example.com", Pool: "n0", Device: "gpu-0", Data: &raw,
		})
	}
	claim.Status.Allocation = allocation
	return claim
}

// wireField is the beginning of a protobuf field of that length.
func wireField(number byte, length int) []byte {
	return binary.AppendUvarint([]byte{number<<3 | 2}, uint64(length))
}

// worstCluster answers lists of claims, without ever having one of them in memory.
func worstCluster() (http.HandlerFunc, error) {
	claim, err := worstClaim().Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding a claim: %w", err)
	}
	kind, err := (&runtime.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaimList"}).Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding the type of a list: %w", err)
	}
	item := append(wireField(2, len(claim)), claim...)
	return func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		n := min(limit, worstClaims-from)
		remaining := int64(worstClaims - from - n)
		list := metav1.ListMeta{ResourceVersion: "1"}
		if remaining > 0 {
			list.Continue, list.RemainingItemCount = strconv.Itoa(from+n), &remaining
		}
		meta, err := list.Marshal()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		meta = append(wireField(1, len(meta)), meta...)
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		head := bytes.Join([][]byte{[]byte("k8s\x00"), wireField(1, len(kind)), kind, wireField(2, len(meta)+n*len(item)), meta}, nil)
		_, err = w.Write(head)
		for ; n > 0 && err == nil; n-- {
			_, err = w.Write(item)
		}
	}, nil
}

// ReadClaims reads the claims of that API server as the plugin does, and writes how many bytes it had in memory at most.
func ReadClaims(ctx context.Context, server string, out io.Writer) error {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server})
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", server, err)
	}
	query := kube.AllocatedQuery{Driver: "gpu.prism.dev", Limit: worstPage, Devices: map[gpu.PoolDevice]bool{{Pool: "n0", Device: "gpu-0"}: true}}
	for pages := 0; pages < worstClaims/worstPage; pages++ {
		page, err := kube.Claims{Client: client}.Allocated(ctx, query)
		if err != nil {
			return err
		}
		if query.Continue = page.Continue; query.Continue == "" {
			memory, err := MemoryOf(os.Getpid())
			if err == nil {
				// How much of the program's file is in memory depends on how it was written: a linker's has several MiB more than a copy.
				_, err = fmt.Fprintln(out, memory.Peak-(memory.Resident-memory.Anonymous))
			}
			return err
		}
	}
	return fmt.Errorf("reading claims: more than %d pages", worstClaims/worstPage)
}

// ListClaims has another process read the worst claims. The program is run with the API server's address as its last argument and calls
// ReadClaims.
func ListClaims(ctx context.Context, program ...string) (ClaimList, error) {
	list := ClaimList{Claims: worstClaims, Bytes: int64(worstClaims * worstClaim().Size())}
	answer, err := worstCluster()
	if err != nil {
		return list, err
	}
	server := httptest.NewServer(answer)
	defer server.Close()
	reader := exec.CommandContext(ctx, program[0], append(program[1:], server.URL)...)
	reader.Stderr = os.Stderr
	out, err := reader.Output()
	if err != nil {
		return list, fmt.Errorf("reading %d claims in another process: %w", worstClaims, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	if list.Peak, err = strconv.ParseInt(first, 10, 64); err != nil {
		return list, fmt.Errorf("reading %d claims in another process: its memory: %w", worstClaims, err)
	}
	return list, nil
}

// rows are those of a section.
func (l ClaimList) rows() []Row {
	return []Row{{
		Name: "peak memory without files of the process that reads them", Count: int(l.Peak), Bytes: true, Budget: AtMost(claimListBudget),
	}}
}

// list measures it.
func (b *bencher) list(ctx context.Context) error {
	l, err := ListClaims(ctx, b.Reader...)
	b.report.Add(fmt.Sprintf("which devices are allocated, in a cluster of %d claims of %s each", l.Claims, mebibytes(l.Bytes/int64(l.Claims))), "", l.rows()...)
	return err
}
