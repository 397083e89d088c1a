package bench

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

const (
	worstClaims = 1000
	worstPage   = 250
	// claimListBudget is an eighth of the plugin's memory limit in the chart.
	claimListBudget = 32 << 20
	// worstConfigs and worstParameters are limits of the API: configurations of a claim, and bytes of one configuration.
	worstConfigs, worstParameters = 32, 10 << 10
	worstAnnotations              = 256 << 10
)

// worstClaim returns a claim with the maximum of everything that the API server accepts, within the limit of 1.5 MiB for an object.
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

// wireField returns the beginning of a protobuf field of that length.
func wireField(number byte, length int) []byte {
	return binary.AppendUvarint([]byte{number<<3 | 2}, uint64(length))
}

// worstCluster answers lists of claims. It never stores a whole list in memory.
func worstCluster(t *testing.T) http.HandlerFunc {
	t.Helper()
	claim, err := worstClaim().Marshal()
	require.NoError(t, err)
	kind, err := (&runtime.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaimList"}).Marshal()
	require.NoError(t, err)
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
	}
}

// readClaims reads the claims of that API server as the plugin does, and writes its peak memory in bytes. Pages of files do not count: they
// show how much of the program is mapped, not the cost of reading.
func readClaims(t *testing.T, server string, out io.Writer) {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server})
	require.NoError(t, err)
	query := kube.AllocatedQuery{Driver: "gpu.prism.dev", Limit: worstPage, Devices: map[gpu.PoolDevice]bool{{Pool: "n0", Device: "gpu-0"}: true}}
	for page := range worstClaims / worstPage {
		require.Equal(t, page > 0, query.Continue != "", "page %d", page)
		read, err := kube.Claims{Client: client}.Allocated(t.Context(), query)
		require.NoError(t, err)
		query.Continue = read.Continue
	}
	require.Empty(t, query.Continue)
	memory, err := MemoryOf(os.Getpid())
	require.NoError(t, err)
	_, err = fmt.Fprintln(out, memory.Peak-memory.Resident+memory.Anonymous)
	require.NoError(t, err)
}

// To find out which devices of its node are allocated, a plugin reads the claims of the whole cluster. Tenants may create claims as large
// as the API server accepts. The test runs as two processes: the reader gets the address of the API server as its argument.
func TestAllocated_LargestClaims_LittleMemory(t *testing.T) {
	if server := flag.Arg(0); server != "" {
		readClaims(t, server, os.Stdout)
		return
	}
	server := httptest.NewServer(worstCluster(t))
	defer server.Close()
	reader := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", server.URL)
	reader.Stderr = os.Stderr
	out, err := reader.Output()
	require.NoError(t, err, string(out))
	first, _, _ := strings.Cut(string(out), "\n")
	peak, err := strconv.Atoi(first)
	require.NoError(t, err)
	size := worstClaim().Size()
	t.Logf("%d claims of %d bytes each, read with a peak of %d bytes", worstClaims, size, peak)
	assert.LessOrEqual(t, peak, claimListBudget)
	assert.Greater(t, worstClaims*size, 1<<30)
	assert.Less(t, size, 3<<19, "an object is no larger than 1.5 MiB")
}
