package podresources

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// serve replaces the socket and serves, as a kubelet does at its start.
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
	pods := Client{Socket: socket, CDIKind: cdiKind, DriverName: "gpu.prism.dev"}
	_, err := pods.Containers(t.Context())
	require.ErrorContains(t, err, "listing the claims of containers at the kubelet socket "+socket+": ", "before the kubelet is there")

	stop := kubelet.serve(t, socket)
	want := Containers{AnyClaim: true, Uses: []Use{{
		Namespace: "ns", Pod: "two", Container: "first", Claim: "a", CDIDevices: []string{"uid-a-gpu-1-GPU-1", "uid-a-gpu-2-GPU-2"},
		Devices: []Device{{Pool: "node", Device: "gpu-1"}, {Pool: "node", Device: "gpu-2", ShareID: "s"}},
	}}}
	found, err := pods.Containers(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, found)
	assert.EqualValues(t, 1, kubelet.calls.Load(), "one call")
	claims, err := pods.Claims(t.Context(), func(namespace, name string) bool { return namespace == "ns" && name == "not-prepared" })
	require.NoError(t, err)
	assert.Equal(t, []Claim{
		{Namespace: "ns", Name: "a", CDIDevices: []string{"uid-a-gpu-1-GPU-1", "uid-a-gpu-2-GPU-2"}}, {Namespace: "ns", Name: "not-prepared"},
	}, claims)

	stop()
	_, err = pods.Containers(t.Context())
	require.Error(t, err, "while the kubelet is away")
	_, err = pods.Claims(t.Context(), nil)
	require.Error(t, err)
	again := &podLister{pods: kubelet.pods}
	again.serve(t, socket)
	found, err = pods.Containers(t.Context())
	require.NoError(t, err, "a kubelet that starts makes a new socket")
	assert.Equal(t, want, found)
}

const cdiKind = "k8s.gpu.prism.dev/claim"

// client returns a client of a kubelet that lists these pods.
func client(t *testing.T, pods ...*podresources.PodResources) Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	(&podLister{pods: pods}).serve(t, socket)
	return Client{Socket: socket, CDIKind: cdiKind, DriverName: "gpu.prism.dev"}
}

// pod returns a pod whose containers, called "0" and so on, have these claims.
func pod(name string, containers ...[]*podresources.DynamicResource) *podresources.PodResources {
	p := &podresources.PodResources{Name: name, Namespace: "ns"}
	for i, claims := range containers {
		p.Containers = append(p.Containers, &podresources.ContainerResources{Name: strconv.Itoa(i), DynamicResources: claims})
	}
	return p
}

func prepared(name, device string) *podresources.DynamicResource {
	return listedClaim(name, "gpu.prism.dev", cdiKind+"="+device)
}

func TestContainers_OtherDriversOnly_AnyClaim(t *testing.T) {
	t.Parallel()
	found, err := client(t, pod("p", []*podresources.DynamicResource{listedClaim("net", "dra.example.com", "example.com/nic=eth0")})).Containers(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Containers{Uses: []Use{}, AnyClaim: true}, found)
	found, err = client(t, pod("p", nil)).Containers(t.Context())
	require.NoError(t, err)
	assert.False(t, found.AnyClaim)
}

// A container may name a claim many times, also between other claims.
func TestContainers_ClaimNamedManyTimes_Once(t *testing.T) {
	t.Parallel()
	kubelet := client(t, pod("p", slices.Repeat([]*podresources.DynamicResource{prepared("a", "a-1"), prepared("b", "b-1"), prepared("a", "a-2")}, 1000)))
	found, err := kubelet.Containers(t.Context())
	require.NoError(t, err)
	var has [][]string
	for _, use := range found.Uses {
		has = append(has, use.CDIDevices)
	}
	assert.Equal(t, [][]string{{"a-1"}, {"a-2"}, {"b-1"}}, has, "once for each set of devices")
	assert.Zero(t, found.Dropped)
	claims, err := kubelet.Claims(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, []Claim{{"ns", "a", []string{"a-1", "a-2"}}, {"ns", "b", []string{"b-1"}}}, claims)
}

// A new claim with the same name is not prepared yet while a container still uses the old one.
func TestClaims_MadeAgain_ListedWithAndWithoutDevices(t *testing.T) {
	t.Parallel()
	kubelet := client(t, pod("old", []*podresources.DynamicResource{prepared("a", "old-1")}), pod("new", []*podresources.DynamicResource{listedClaim("a", "gpu.prism.dev")}))
	claims, err := kubelet.Claims(t.Context(), func(string, string) bool { return true })
	require.NoError(t, err)
	assert.Equal(t, []Claim{{Namespace: "ns", Name: "a"}, {"ns", "a", []string{"old-1"}}}, claims)
}

// Containers of one tenant do not displace containers of another, in whichever order the kubelet lists them.
func TestContainers_TooMany_OthersComplete(t *testing.T) {
	t.Parallel()
	many := func(name string, claims ...string) (pods []*podresources.PodResources) {
		for i := range 20 {
			var containers [][]*podresources.DynamicResource
			for range 500 {
				var named []*podresources.DynamicResource
				for _, claim := range claims {
					named = append(named, prepared(claim, claim+"-1"))
				}
				containers = append(containers, named)
			}
			pods = append(pods, pod(fmt.Sprintf("%s-%d", name, i), containers...))
		}
		return pods
	}
	few := pod("few", slices.Repeat([][]*podresources.DynamicResource{{prepared("few", "few-1")}}, 200)...)
	for name, pods := range map[string][]*podresources.PodResources{
		"first": append([]*podresources.PodResources{few}, many("many", "a", "b", "c")...), "last": append(many("many", "a", "b", "c"), few),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := client(t, pods...).Containers(t.Context())
			require.NoError(t, err)
			of := map[string]int{}
			for _, use := range found.Uses {
				of[use.Claim]++
			}
			assert.Equal(t, 200, of["few"])
			assert.Equal(t, of["a"], of["b"])
			assert.Equal(t, of["a"], of["c"])
			assert.Greater(t, of["a"], 1000)
			assert.LessOrEqual(t, len(found.Uses), MaxContainers)
			assert.Equal(t, 3*20*500+200, len(found.Uses)+found.Dropped)
		})
	}
}

// Texts of any length are read: the list names them as tenants and other drivers do.
func TestContainers_LongNames_ListedCompletely(t *testing.T) {
	t.Parallel()
	long := listedClaim("c", "dra.example.com", "example.com/nic="+strings.Repeat("x", 1<<20))
	var pods []*podresources.PodResources
	for i := range 70 {
		pods = append(pods, pod(strconv.Itoa(i), []*podresources.DynamicResource{long, prepared("a", "a-1")}))
	}
	found, err := client(t, pods...).Containers(t.Context())
	require.NoError(t, err, "more than 64 MiB")
	assert.Len(t, found.Uses, 70)
}

// TestList_KubeletHangs_Error: the call ends with the caller's context.
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
	_, err = Client{Socket: socket}.Containers(ctx)
	require.Error(t, err)
}
