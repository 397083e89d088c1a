package kube_test

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

const ours = "gpu.prism.dev"

// allocationResult returns an allocation result.
func allocationResult(driver, pool, device string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: driver, Pool: pool, Device: device}
}

// largeClaim is a claim with large fields before and after its allocation.
func largeClaim(results ...resourceapi.DeviceRequestAllocationResult) resourceapi.ResourceClaim {
	opaque := &resourceapi.OpaqueDeviceConfiguration{Driver: "gpu.example.com", Parameters: kruntime.RawExtension{
		Raw: []byte(`{"parameters":"` + strings.Repeat("x", 10<<10) + `"}`),
	}}
	c := resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", Annotations: map[string]string{"a": strings.Repeat("y", 100<<10)}},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Config: []resourceapi.DeviceClaimConfiguration{
			{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: opaque}},
		}}},
	}
	if len(results) > 0 {
		c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: results, Config: []resourceapi.DeviceAllocationConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: opaque}}},
		}}
		c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "u"}}
	}
	return c
}

// encoded is an object in the encoding of the API server. Encoding a list item by item gives the same result.
func encoded(t *testing.T, object kruntime.Object, kind string) []byte {
	t.Helper()
	object.GetObjectKind().SetGroupVersionKind(resourceapi.SchemeGroupVersion.WithKind(kind))
	raw, err := kruntime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), object)
	require.NoError(t, err)
	options := protobuf.SerializerOptions{StreamingCollectionsEncoding: true}
	itemByItem, err := kruntime.Encode(protobuf.NewSerializerWithOptions(scheme.Scheme, scheme.Scheme, options), object)
	require.NoError(t, err)
	require.Equal(t, raw, itemByItem)
	return raw
}

// clientOf is a client of a server with that handler.
func clientOf(t *testing.T, handler http.HandlerFunc) kube.Claims {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return kube.Claims{Client: client}
}

// devices is the set of these "<pool> <device>".
func devices(names ...string) map[gpu.PoolDevice]bool {
	found := map[gpu.PoolDevice]bool{}
	for _, name := range names {
		pool, device, _ := strings.Cut(name, " ")
		found[gpu.PoolDevice{Pool: pool, Device: gpu.DeviceName(device)}] = true
	}
	return found
}

func TestAllocated_PageOfClaims_DevicesOfQuery(t *testing.T) {
	t.Parallel()
	admin := allocationResult(ours, "n0", "gpu-c")
	yes, no, share := true, false, allocationResult(ours, "n0/gpu-b", "gpu-b-mig-9-0")
	admin.AdminAccess, share.AdminAccess = &yes, &no
	remaining := int64(3)
	list := &resourceapi.ResourceClaimList{
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "there", RemainingItemCount: &remaining},
		Items: []resourceapi.ResourceClaim{
			largeClaim(), largeClaim(allocationResult(ours, "n0", "gpu-a"), share), largeClaim(admin), largeClaim(allocationResult(ours, "n01", "gpu-d")),
			largeClaim(allocationResult("gpu.example.com", "n0", "gpu-e")), largeClaim(allocationResult(ours, "n0", "gpu-g")), largeClaim(allocationResult(ours, "n0", "gpu-f")),
		},
	}
	raw := encoded(t, list, "ResourceClaimList")
	claims := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/apis/resource.k8s.io/v1/resourceclaims?continue=here&limit=5", r.URL.String(), "without a resourceVersion, which would allow cached results")
		assert.Equal(t, "application/vnd.kubernetes.protobuf", r.Header.Get("Accept"))
		_, _ = w.Write(raw)
	})
	page, err := claims.Allocated(t.Context(), kube.AllocatedQuery{
		Driver: ours, Continue: "here", Limit: 5,
		Devices: devices("n0 gpu-a", "n0/gpu-b gpu-b-mig-9-0", "n0 gpu-c", "n0 gpu-d", "n0 gpu-e", "n0 gpu-f", "n0 gpu-z"),
	})
	require.NoError(t, err)
	want := &kube.AllocatedPage{Devices: devices("n0 gpu-a", "n0/gpu-b gpu-b-mig-9-0", "n0 gpu-f"), Continue: "there", Remaining: 3}
	assert.Empty(t, cmp.Diff(want, page))
}

// TestAllocated_DevicesOfNode_OfItsPools: including devices with admin access, which the kubelet unprepares like others.
func TestAllocated_DevicesOfNode_OfItsPools(t *testing.T) {
	t.Parallel()
	admin, yes := allocationResult(ours, "n0/monitor", "monitor"), true
	admin.AdminAccess = &yes
	raw := encoded(t, &resourceapi.ResourceClaimList{Items: []resourceapi.ResourceClaim{
		largeClaim(allocationResult(ours, "n0/gpu-b", "gpu-b"), allocationResult(ours, "n01", "gpu-d"), allocationResult(ours, "n1/n0", "gpu-d")),
		largeClaim(admin), largeClaim(allocationResult("gpu.example.com", "n0", "gpu-e")), largeClaim(allocationResult(ours, "n0", "gpu-a")),
	}}, "ResourceClaimList")
	claims := clientOf(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) })
	page, err := claims.Allocated(t.Context(), kube.AllocatedQuery{Driver: ours, Node: "n0"})
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(devices("n0/gpu-b gpu-b", "n0/monitor monitor", "n0 gpu-a"), page.Devices))
}

func TestAllocated_LastPage_NoContinueToken(t *testing.T) {
	t.Parallel()
	raw := encoded(t, &resourceapi.ResourceClaimList{}, "ResourceClaimList")
	claims := clientOf(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) })
	page, err := claims.Allocated(t.Context(), kube.AllocatedQuery{Driver: ours})
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(&kube.AllocatedPage{Devices: devices()}, page))
}

func TestAllocated_InvalidResponse_Error(t *testing.T) {
	t.Parallel()
	whole := encoded(t, &resourceapi.ResourceClaimList{Items: []resourceapi.ResourceClaim{largeClaim(allocationResult(ours, "n0", "gpu-a"))}}, "ResourceClaimList")
	for name, c := range map[string]struct {
		response []byte
		want     string
	}{
		"empty":                   {nil, "EOF"},
		"JSON":                    {[]byte(`{"kind":"ResourceClaimList"}`), "not in the Kubernetes protobuf format"},
		"another kind":            {encoded(t, &resourceapi.ResourceClaim{}, "ResourceClaim"), "got a ResourceClaim of resource.k8s.io/v1"},
		"magic alone":             {whole[:4], "EOF"},
		"truncated in a claim":    {whole[:len(whole)/2], "EOF"},
		"last byte missing":       {whole[:len(whole)-5], "EOF"},
		"content before its type": {[]byte("k8s\x00\x12\x00"), "content before its type"},
		"type alone":              {append([]byte("k8s\x00"), whole[4:6+whole[5]]...), "EOF"},
		"group":                   {[]byte("k8s\x00\x0b"), "wire type 3"},
		"length beyond the end":   {[]byte("k8s\x00\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "malformed protobuf"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claims := clientOf(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(c.response) })
			_, err := claims.Allocated(t.Context(), kube.AllocatedQuery{Driver: ours, Devices: devices("n0 gpu-a")})
			assert.ErrorContains(t, err, "listing claims: decoding the API server's response: ")
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestAllocated_ContinueTokenExpired_IsResourceExpired(t *testing.T) {
	t.Parallel()
	claims := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		status := apierrors.NewResourceExpired("the provided continue parameter is too old").Status()
		status.Kind, status.APIVersion = "Status", "v1"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGone)
		assert.NoError(t, json.NewEncoder(w).Encode(status))
	})
	_, err := claims.Allocated(t.Context(), kube.AllocatedQuery{Driver: ours, Continue: "old"})
	assert.True(t, apierrors.IsResourceExpired(err), "%v", err)
	assert.ErrorContains(t, err, "listing claims: the provided continue parameter is too old")
}

// wireField is the tag and length of a protobuf field.
func wireField(number byte, length uint64) []byte {
	return binary.AppendUvarint([]byte{number<<3 | 2}, length)
}

// repeated is an endless stream of one byte.
type repeated byte

func (r repeated) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r)
	}
	return len(p), nil
}

// hugeList is an encoded list of claims with a spec of that many bytes each, followed by a claim with gpu-a.
func hugeList(t *testing.T, claims int, spec int64) io.Reader {
	t.Helper()
	list := &resourceapi.ResourceClaimList{Items: []resourceapi.ResourceClaim{largeClaim(allocationResult(ours, "n0", "gpu-a"))}}
	last, err := list.Marshal()
	require.NoError(t, err)
	inner := wireField(2, uint64(spec))
	item := append(wireField(2, uint64(len(inner))+uint64(spec)), inner...)
	envelope := encoded(t, &resourceapi.ResourceClaimList{}, "ResourceClaimList")
	head := append([]byte{}, envelope[:6+envelope[5]]...)
	head = append(head, wireField(2, uint64(claims)*(uint64(len(item))+uint64(spec))+uint64(len(last)))...)
	parts := []io.Reader{strings.NewReader(string(head))}
	for range claims {
		parts = append(parts, strings.NewReader(string(item)), io.LimitReader(repeated(0xff), spec))
	}
	return io.MultiReader(append(parts, strings.NewReader(string(last)))...)
}

// The test is not parallel, because it measures the allocations of the whole process.
func TestAllocated_HugeClaims_NotBuffered(t *testing.T) {
	const claims, spec = 64, 4 << 20
	stored := map[bool]uint64{}
	for _, huge := range []bool{false, true} {
		claims := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
			size := int64(1)
			if huge {
				size = spec
			}
			_, _ = io.CopyBuffer(struct{ io.Writer }{w}, hugeList(t, claims, size), make([]byte, 32<<10))
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		page, err := claims.Allocated(t.Context(), kube.AllocatedQuery{Driver: ours, Devices: devices("n0 gpu-a")})
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(devices("n0 gpu-a"), page.Devices))
		stored[huge] = after.TotalAlloc - before.TotalAlloc
	}
	t.Logf("allocated for small claims %d bytes, for huge ones %d", stored[false], stored[true])
	assert.Less(t, stored[true], stored[false]+spec, "the response has 256 MiB")
}
