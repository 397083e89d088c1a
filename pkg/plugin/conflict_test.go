package plugin

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// oneGPU is a host with a driver that sees one GPU.
type oneGPU struct {
	gpu.ComputeModes
	gpu.MemoryLimiter
	gpu.MIGDriver
}

func (oneGPU) FindDriver(string) (hostfs.DriverRoot, error) {
	return hostfs.DriverRoot{HostPath: "/", Library: "libnvidia-ml.so.1"}, nil
}

func (oneGPU) KernelModule() string { return "580.95.05" }

func (oneGPU) PCI(busID string) gpu.PCI { return gpu.PCI{BusID: busID, NUMANode: -1} }

func (oneGPU) Driver(context.Context) (gpu.Driver, error) {
	return gpu.Driver{Version: "580.95.05"}, nil
}

func (oneGPU) GPUs(ctx context.Context) ([]gpu.GPU, []gpu.Fault, error) {
	return []gpu.GPU{{UUID: "GPU-aaaaaaaa-0000-4000-8000-000000000000", PCI: gpu.PCI{BusID: "0000:01:00.0"}}}, nil, ctx.Err()
}

func (oneGPU) CommonEdits(context.Context) (*specs.ContainerEdits, error) {
	return &specs.ContainerEdits{}, nil
}

func (oneGPU) Close() error { return nil }

// driverHost is this machine with that driver.
type driverHost struct{ *hostfs.FS }

func (driverHost) FindDriver(explicit string) (hostfs.DriverRoot, error) {
	return oneGPU{}.FindDriver(explicit)
}

func (driverHost) KernelModule() string { return oneGPU{}.KernelModule() }

func (driverHost) CharDevice(path string) (hostfs.CharDevice, error) {
	return hostfs.CharDevice{Path: path}, nil
}

func (driverHost) PCI(busID string) gpu.PCI { return oneGPU{}.PCI(busID) }

// taintless is an API server that stores ResourceSlices without taints.
type taintless struct {
	*fake.Clientset
	// answers reports whether it keeps taints in dry runs, as another replica of it may.
	answers bool
	mu      sync.Mutex
	version int
	// most is how many devices a stored ResourceSlice had at most.
	most int
}

func newTaintless(answers bool) *taintless {
	s := &taintless{
		Clientset: fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", UID: "node-uid"}}), answers: answers,
	}
	s.PrependReactor("create", "resourceslices", func(action kubetesting.Action) (bool, runtime.Object, error) {
		create, _ := action.(kubetesting.CreateActionImpl)
		slice, _ := create.Object.(*resourceapi.ResourceSlice)
		return s.write(slice, len(create.CreateOptions.DryRun) > 0)
	})
	s.PrependReactor("update", "resourceslices", func(action kubetesting.Action) (bool, runtime.Object, error) {
		update, _ := action.(kubetesting.UpdateActionImpl)
		slice, _ := update.Object.(*resourceapi.ResourceSlice)
		return s.write(slice, false)
	})
	return s
}

// write does the server's work before it stores a ResourceSlice.
func (s *taintless) write(slice *resourceapi.ResourceSlice, dryRun bool) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if dryRun {
		if !s.answers {
			slice.Spec.Devices[0].Taints = nil
		}
		return true, slice, nil
	}
	s.version++
	slice.ResourceVersion = strconv.Itoa(s.version)
	if slice.Name == "" {
		slice.Name = slice.GenerateName + slice.ResourceVersion
	}
	for i := range slice.Spec.Devices {
		slice.Spec.Devices[i].Taints = nil
	}
	s.most = max(s.most, len(slice.Spec.Devices))
	return false, nil, nil
}

// devices counts the stored devices in the pool of the node, -1 for no ResourceSlice.
func (s *taintless) devices(t *testing.T) int {
	t.Helper()
	list, err := s.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	if len(list.Items) != 1 {
		return -1
	}
	return len(list.Items[0].Spec.Devices)
}

// started is a plugin's publishing half beside a device plugin, whose socket is returned. It publishes to the API server.
func started(t *testing.T, server *taintless) (*nodeLayout, net.Listener) {
	t.Helper()
	cfg, a := oneGPUNode(t, server)
	sockets := filepath.Join(filepath.Dir(cfg.Paths.KubeletPlugins), "device-plugins")
	require.NoError(t, os.MkdirAll(sockets, 0o750))
	socket, err := net.Listen("unix", filepath.Join(sockets, "nvidia-gpu.sock"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })

	machine, err := OpenMachine(t.Context(), cfg, a, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, machine.Close()) })
	require.NoError(t, machine.Inventory.Refresh(t.Context()))
	api, err := a.API(t.Context())
	require.NoError(t, err)
	source, cfg, read := startConfig(t.Context(), cfg, a, api)
	l := newLayout(cfg, machine, source, api)
	l.Begin(t.Context(), read)

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	for _, run := range []func(context.Context) error{l.Publisher.Run, l.publish} {
		running.Go(func() { assert.NoError(t, run(ctx)) })
	}
	return l, socket
}

// oneGPUNode is a node with one GPU, and the adapters of its plugin.
func oneGPUNode(t *testing.T, server kubernetes.Interface) (*config.Plugin, Adapters) {
	t.Helper()
	root, err := os.MkdirTemp("", "prism") // a socket's path has at most 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	cfg := &config.Plugin{
		DriverName: "gpu.prism.dev", NodeName: "n0", Driver: config.Driver{CDIHook: config.NoCDIHook}, Paths: config.Paths{
			KubeletPlugins: filepath.Join(root, "plugins"), KubeletRegistrar: filepath.Join(root, "registry"), CDIRoot: filepath.Join(root, "cdi"),
			StateDir: filepath.Join(root, "state"), RunDir: filepath.Join(root, "run"), KubeletPodResources: filepath.Join(root, "pod-resources.sock"),
		},
	}
	for _, dir := range []string{cfg.Paths.KubeletPlugins, cfg.Paths.KubeletRegistrar} {
		require.NoError(t, os.MkdirAll(dir, 0o750))
	}
	a := System(cfg, testVersion)
	a.Host = driverHost{hostfs.New("/")}
	a.Driver = func(string) inventory.Opener {
		return func(context.Context, hostfs.DriverRoot) (inventory.Session, error) { return oneGPU{}, nil }
	}
	a.API = func(ctx context.Context) (API, error) {
		return NewAPI(ctx, APIOptions{Config: cfg, Claims: server, Background: server, Events: kube.NewEvents(server, cfg.DriverName, cfg.NodeName)}), nil
	}
	return cfg, a
}

// TestConflict_TaintsDropped_DevicesWithdrawn: if the API server says that it stores no taints, no device is ever published during a
// conflict. If another replica answers that it does, as in the middle of an upgrade, no device stays published. All are back afterwards.
func TestConflict_TaintsDropped_DevicesWithdrawn(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]bool{"the server says so": false, "another replica answers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newTaintless(answers)
			l, socket := started(t, server)
			require.Error(t, l.Conflicts.Withheld(), "claims are refused in any case")
			require.Eventually(t, func() bool { return server.devices(t) == 0 }, time.Minute, time.Millisecond)
			server.mu.Lock()
			assert.Equal(t, answers, server.most > 0)
			server.mu.Unlock()

			require.NoError(t, socket.Close())
			l.Conflicts.Check(t.Context())
			require.NoError(t, l.Conflicts.Withheld())
			require.Eventually(t, func() bool { return server.devices(t) == 1 }, time.Minute, time.Millisecond)
		})
	}
}

// Health returns a reading of a GPU without problems.
func (oneGPU) Health(_ context.Context, g *gpu.GPU) gpu.HealthReading {
	return gpu.HealthReading{UUID: g.UUID, Events: true}
}

// WatchHealth waits for the context to end.
func (oneGPU) WatchHealth(ctx context.Context, _ func(gpu.HealthEvent)) error {
	<-ctx.Done()
	return nil
}

// Alive returns nil: the GPU responds.
func (oneGPU) Alive(ctx context.Context, _ gpu.UUID) error { return ctx.Err() }
