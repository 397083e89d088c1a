package podresources

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// podLister is a kubelet that lists these pods.
type podLister struct {
	podresources.UnimplementedPodResourcesListerServer
	pods  []*podresources.PodResources
	calls atomic.Int64
}

func (l *podLister) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	l.calls.Add(1)
	return &podresources.ListPodResourcesResponse{PodResources: l.pods}, ctx.Err()
}

// serve serves at a new socket in place of the one that was there, as a kubelet does that starts.
func (l *podLister) serve(t *testing.T, socket string) (stop func()) {
	t.Helper()
	if err := os.Remove(socket); !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, l)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

// listedClaim is a claim as the kubelet lists it, with devices of one driver.
func listedClaim(name, driver string, devices ...string) *podresources.DynamicResource {
	claim := &podresources.DynamicResource{ClaimNamespace: "ns", ClaimName: name}
	for i, device := range devices {
		claim.ClaimResources = append(claim.ClaimResources, &podresources.ClaimResource{
			DriverName: driver, PoolName: "node", DeviceName: fmt.Sprintf("gpu-%d", i+1), CdiDevices: []*podresources.CDIDevice{{Name: device}},
		})
	}
	return claim
}

func TestList_ClaimsOfContainers_Listed(t *testing.T) {
	t.Parallel()
	shared := listedClaim("a", "gpu.prism.dev", "k8s.gpu.prism.dev/claim=uid-a-gpu-1-GPU-1", "k8s.gpu.prism.dev/claim=uid-a-gpu-2-GPU-2")
	shared.ClaimResources[1].ShareId = new("s")
	kubelet := &podLister{pods: []*podresources.PodResources{
		{Name: "none", Containers: []*podresources.ContainerResources{{Name: "main"}}},
		{Name: "two", Containers: []*podresources.ContainerResources{
			{Name: "first", DynamicResources: []*podresources.DynamicResource{
				shared,
				listedClaim("net", "dra.example.com", "example.com/nic=eth0"),
			}},
			{Name: "second", DynamicResources: []*podresources.DynamicResource{listedClaim("not-prepared", "gpu.prism.dev")}},
		}},
	}}
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	pods := Client{Socket: socket, CDIKind: "k8s.gpu.prism.dev/claim", DriverName: "gpu.prism.dev"}
	_, err := pods.List(t.Context())
	require.ErrorContains(t, err, "asking the kubelet at "+socket+" which claims containers have: ", "before the kubelet is there")

	stop := kubelet.serve(t, socket)
	want := []Use{
		{
			Namespace: "ns", Pod: "two", Container: "first", Claim: "a", CDIDevices: []string{"uid-a-gpu-1-GPU-1", "uid-a-gpu-2-GPU-2"},
			Devices: []Device{{Pool: "node", Device: "gpu-1"}, {Pool: "node", Device: "gpu-2", ShareID: "s"}},
		},
		{Namespace: "ns", Pod: "two", Container: "first", Claim: "net"},
		{Namespace: "ns", Pod: "two", Container: "second", Claim: "not-prepared"},
	}
	uses, err := pods.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, uses)
	assert.EqualValues(t, 1, kubelet.calls.Load(), "one call")

	stop()
	_, err = pods.List(t.Context())
	require.Error(t, err, "while the kubelet is away")
	again := &podLister{pods: kubelet.pods}
	again.serve(t, socket)
	uses, err = pods.List(t.Context())
	require.NoError(t, err, "a kubelet that starts makes a new socket")
	assert.Equal(t, want, uses)
}

// TestList_LargeNode_ListedCompletely: the library would refuse more than 4 MiB.
func TestList_LargeNode_ListedCompletely(t *testing.T) {
	t.Parallel()
	kubelet := &podLister{}
	name := string(make([]byte, 64<<10))
	for range 100 {
		kubelet.pods = append(kubelet.pods, &podresources.PodResources{Containers: []*podresources.ContainerResources{
			{DynamicResources: []*podresources.DynamicResource{listedClaim("c", "gpu.prism.dev", "k8s.gpu.prism.dev/claim="+name)}},
		}})
	}
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	kubelet.serve(t, socket)
	uses, err := Client{Socket: socket, CDIKind: "k8s.gpu.prism.dev/claim"}.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, uses, 100)
}

// TestList_KubeletHangs_Error ends with the caller's context.
func TestList_KubeletHangs_Error(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if accepted, err := listener.Accept(); err == nil {
			cancel()
			_ = accepted.Close()
		}
	}()
	_, err = Client{Socket: socket}.List(ctx)
	require.Error(t, err)
}
