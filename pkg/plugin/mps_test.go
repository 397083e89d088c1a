package plugin

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/mps"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// askedService is an MPS service that counts its listings.
type askedService struct {
	mps.NoDaemons

	mu    sync.Mutex
	path  string
	asked int
	down  bool
	// held keeps answers back while it is open; nil for none.
	held chan struct{}
	// problem is why it can start no control daemon.
	problem string
}

func (s *askedService) Probe(ctx context.Context) (problem string, err error) {
	if s.held != nil {
		select {
		case <-s.held:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return "", gpu.ErrMPSUnavailable
	}
	return s.problem, ctx.Err()
}

func (s *askedService) Daemons(ctx context.Context, after int64) ([]gpu.MPSDaemon, int64, error) {
	if s.held != nil {
		select {
		case <-s.held:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	s.mu.Lock()
	s.asked++
	down := s.down
	s.mu.Unlock()
	if down {
		return nil, 0, gpu.ErrMPSUnavailable
	}
	if after > 0 {
		<-ctx.Done()
	}
	return []gpu.MPSDaemon{{ID: "a", State: gpu.MPSRunning}}, 1, ctx.Err()
}

func (s *askedService) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// noted are the Events of a node.
type noted struct {
	mu    sync.Mutex
	notes []string
}

func (n *noted) Warn(reason, _, note string)   { n.add("Warning " + reason + ": " + note) }
func (n *noted) Normal(reason, _, note string) { n.add("Normal " + reason + ": " + note) }

func (n *noted) add(note string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notes = append(n.notes, note)
}

func (n *noted) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string{}, n.notes...)
}

// h100 is a driver that sees one GPU which MPS can share.
type h100 struct{ oneGPU }

func (h100) GPUs(ctx context.Context) ([]gpu.GPU, []gpu.Fault, error) {
	gpus, faults, err := oneGPU{}.GPUs(ctx)
	gpus[0].Capacity.MemoryBytes, gpus[0].Product.ComputeCapability = 80<<30, "9.0"
	return gpus, faults, err
}

// naming makes the API server name and version ResourceSlices, which the fake one does not.
func naming(server *fake.Clientset) {
	var version atomic.Int64
	for _, verb := range []string{"create", "update"} {
		server.PrependReactor(verb, "resourceslices", func(action kubetesting.Action) (bool, runtime.Object, error) {
			write, _ := action.(interface{ GetObject() runtime.Object })
			slice, _ := write.GetObject().(*resourceapi.ResourceSlice)
			slice.ResourceVersion = strconv.FormatInt(version.Add(1), 10)
			if slice.Name == "" {
				slice.Name = slice.GenerateName + slice.ResourceVersion
			}
			return false, nil, nil
		})
	}
}

// mpsOf is the plugin's extension for claims that use devices with MPS.
func mpsOf(p *Plugin) *mps.Extension { return extension.All[*mps.Extension](p.Machine.Extensions)[0] }

// mpsNode runs a plugin whose GPU is advertised in these modes, with an MPS service that answers.
func mpsNode(t *testing.T, modes string) (p *Plugin, server *fake.Clientset, service *askedService, recorder *noted) {
	t.Helper()
	service = &askedService{}
	p, server, recorder = mpsNodeOf(t, modes, service)
	return p, server, service, recorder
}

// mpsNodeOf has that MPS service.
func mpsNodeOf(t *testing.T, modes string, service *askedService) (p *Plugin, server *fake.Clientset, recorder *noted) {
	t.Helper()
	server = fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", UID: "node-uid"}})
	naming(server)
	cfg, a := oneGPUNode(t, server)
	a.Driver = func(string) inventory.Opener {
		return func(context.Context, hostfs.DriverRoot) (inventory.Session, error) { return h100{}, nil }
	}
	cfg.NodeConfig.File = filepath.Join(cfg.Paths.KubeletPlugins, "config.yaml")
	require.NoError(t, os.WriteFile(cfg.NodeConfig.File, []byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus:\n- modes: "+modes+"\n"), 0o600))
	recorder = &noted{}
	a.Services.MPS = func(socket string) mps.Daemons {
		service.path = socket
		return service
	}
	connect := a.API
	a.API = func(ctx context.Context) (API, error) {
		api, err := connect(ctx)
		api.Events, api.Cluster = recorder, unallocated{api.Cluster}
		return api, err
	}
	p, err := Build(t.Context(), cfg, a)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-done)
	})
	registerAt(t, cfg.Paths.KubeletRegistrar)
	return p, server, recorder
}

// unallocated is a cluster in which no claim has devices.
type unallocated struct{ Cluster }

func (unallocated) Allocated(context.Context, kube.AllocatedQuery) (*kube.AllocatedPage, error) {
	return &kube.AllocatedPage{}, nil
}

// taintsOf are the keys of the taints of the published devices, by device.
func taintsOf(t *testing.T, server *fake.Clientset) map[string][]string {
	t.Helper()
	list, err := server.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	found := map[string][]string{}
	for i := range list.Items {
		for _, d := range list.Items[i].Spec.Devices {
			found[d.Name] = []string{}
			for _, taint := range d.Taints {
				found[d.Name] = append(found[d.Name], taint.Key)
			}
		}
	}
	return found
}

// TestMPS_ServiceUnavailable_SharesTainted, and an Event names the chart value.
func TestMPS_ServiceUnavailable_SharesTainted(t *testing.T) {
	t.Parallel()
	p, server, service, recorder := mpsNode(t, "[mps]\n  mps: {replicas: 2}")
	published := func(taints ...string) {
		t.Helper()
		want := map[string][]string{"gpu-aaaaaaaa-mps": append([]string{}, taints...)}
		require.Eventually(t, func() bool { return assert.ObjectsAreEqual(want, taintsOf(t, server)) }, time.Minute, time.Millisecond)
	}
	published()
	watcher := mpsOf(p).Watcher
	require.Eventually(t, watcher.Answers, time.Minute, time.Millisecond, "it is watched")
	assert.Equal(t, "mpsd.sock", filepath.Base(service.path))
	assert.Equal(t, map[gpu.MPSDaemonState]int{gpu.MPSRunning: 1}, watcher.States())

	changed := mpsOf(p).Watched().Changed
	unavailable := mps.Answer{Asked: true, Unavailable: gpu.ErrMPSUnavailable}
	changed(mps.Answer{Asked: true}, unavailable)
	published("gpu.prism.dev/mps-unavailable")
	changed(unavailable, mps.Answer{Asked: true})
	published()
	assert.Equal(t, []string{
		"Warning MPSUnavailable: New claims get no MPS share of this node, and processes that start now cannot use one: the MPS service does not answer; " +
			"set the chart value mps.enabled to true, or check the pod of the MPS service on this node",
		"Normal MPSAvailable: The MPS service answers again",
	}, recorder.all())
}

// TestMPS_ServiceUnavailableAtStart_FirstPublicationTainted: no ResourceSlice was ever written without the taint.
func TestMPS_ServiceUnavailableAtStart_FirstPublicationTainted(t *testing.T) {
	t.Parallel()
	service := &askedService{down: true}
	_, server, recorder := mpsNodeOf(t, "[mps]\n  mps: {replicas: 2}", service)
	const device = "gpu-aaaaaaaa-mps"
	require.Eventually(t, func() bool { return taintsOf(t, server)[device] != nil }, time.Minute, time.Millisecond)
	assert.Equal(t, []string{"gpu.prism.dev/mps-unavailable"}, taintsOf(t, server)[device])
	writtenTainted(t, server, device)
	assert.Len(t, recorder.all(), 1)
}

// TestMPS_NoControlDaemonCanBeStarted_SharesTainted: the service answers, and the driver lacks the programs of MPS. The taint is removed
// once they are installed.
func TestMPS_NoControlDaemonCanBeStarted_SharesTainted(t *testing.T) {
	t.Parallel()
	service := &askedService{problem: "MPS needs nvidia-cuda-mps-control"}
	_, server, recorder := mpsNodeOf(t, "[mps]\n  mps: {replicas: 2}", service)
	const device = "gpu-aaaaaaaa-mps"
	tainted := func(taints ...string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return assert.ObjectsAreEqual(append([]string{}, taints...), taintsOf(t, server)[device])
		}, time.Minute, time.Millisecond)
	}
	tainted("gpu.prism.dev/mps-unavailable")
	writtenTainted(t, server, device)
	service.mu.Lock()
	service.problem = ""
	service.mu.Unlock()
	tainted()
	const available = "Normal MPSAvailable: The MPS service can start control daemons again"
	require.Eventually(t, func() bool { return slices.Contains(recorder.all(), available) }, time.Minute, time.Millisecond)
	assert.Equal(t, []string{
		"Warning MPSUnavailable: New claims get no MPS share of this node: the MPS service cannot start a control daemon: MPS needs nvidia-cuda-mps-control",
		available,
	}, recorder.all())
}

// TestMPS_ConflictEndsWhereTaintsAreDropped_SharesNotPublished: without a service, and on a server that does not store their taint, shares are
// withdrawn. The end of a conflict does not publish them.
func TestMPS_ConflictEndsWhereTaintsAreDropped_SharesNotPublished(t *testing.T) {
	t.Parallel()
	server := newTaintless(false)
	cfg, a := oneGPUNode(t, server)
	a.Driver = func(string) inventory.Opener {
		return func(context.Context, hostfs.DriverRoot) (inventory.Session, error) { return h100{}, nil }
	}
	cfg.NodeConfig.File = filepath.Join(cfg.Paths.KubeletPlugins, "config.yaml")
	require.NoError(t, os.WriteFile(cfg.NodeConfig.File,
		[]byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus:\n- modes: [whole, mps]\n  mps: {replicas: 2}\n"), 0o600))
	machine, err := OpenMachine(t.Context(), cfg, a, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, machine.Close()) })
	require.NoError(t, machine.Inventory.Refresh(t.Context()))
	api, err := a.API(t.Context())
	require.NoError(t, err)
	slices := &recordedSlices{leads: true}
	api.Slices, api.Cluster = slices, supportive{api.Cluster}
	source, cfg, read := startConfig(t.Context(), cfg, a, api)
	l := newLayout(cfg, machine, source, api)
	l.Begin(t.Context(), read)
	published := func() []string {
		l.Publisher.Publish()
		names := make([]string, 0, 2)
		for name := range slices.published() {
			names = append(names, name)
		}
		return names
	}
	l.setAvailability(gpu.TypeMPS, extension.Available)
	require.ElementsMatch(t, []string{"gpu-aaaaaaaa", "gpu-aaaaaaaa-mps"}, published())
	l.setAvailability(gpu.TypeMPS, extension.Unavailable)
	l.conflict(publish.ConflictDevicePlugin, false)
	require.Empty(t, published())
	l.conflict("", false)
	assert.Equal(t, []string{"gpu-aaaaaaaa"}, published())
}

// writtenTainted asserts that no ResourceSlice was ever written with the device but without its taint.
func writtenTainted(t *testing.T, server *fake.Clientset, device string) {
	t.Helper()
	for _, action := range server.Actions() {
		write, _ := action.(interface{ GetObject() runtime.Object })
		if write == nil {
			continue
		}
		slice, is := write.GetObject().(*resourceapi.ResourceSlice)
		if !is {
			continue
		}
		for i := range slice.Spec.Devices {
			if slice.Spec.Devices[i].Name == device {
				assert.Len(t, slice.Spec.Devices[i].Taints, 1, action.GetVerb())
			}
		}
	}
}

// TestMPS_SharesAdvertisedLater_NeverWithoutTaint: a configuration that begins to advertise shares does not publish them before the MPS service
// has been asked, which takes a second at most.
func TestMPS_SharesAdvertisedLater_NeverWithoutTaint(t *testing.T) {
	t.Parallel()
	service := &askedService{down: true, held: make(chan struct{})} // it hangs
	p, server, _ := mpsNodeOf(t, "[whole]", service)
	const whole, share = "gpu-aaaaaaaa", "gpu-aaaaaaaa-mps"
	require.Eventually(t, func() bool { return taintsOf(t, server)[whole] != nil }, time.Minute, time.Millisecond)
	require.NoError(t, os.WriteFile(p.Machine.cfg.NodeConfig.File,
		[]byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus:\n- modes: [mps]\n  mps: {replicas: 2}\n"), 0o600))
	require.Eventually(t, func() bool { return taintsOf(t, server)[share] != nil }, time.Minute, time.Millisecond)
	writtenTainted(t, server, share)
}

// TestMPS_NodeWithoutShares_ServiceNotAsked: neither the watcher nor the garbage collector connects.
func TestMPS_NodeWithoutShares_ServiceNotAsked(t *testing.T) {
	t.Parallel()
	p, server, service, recorder := mpsNode(t, "[whole]")
	require.Eventually(t, func() bool { return len(taintsOf(t, server)) == 1 }, time.Minute, time.Millisecond)
	assert.False(t, mpsOf(p).Needed(p.layout.Now)())
	_, err := p.leader.reconciler.Node.Collect(t.Context(), nil, true)
	require.NoError(t, err)
	assert.Zero(t, service.calls())
	assert.Empty(t, recorder.all())
}
