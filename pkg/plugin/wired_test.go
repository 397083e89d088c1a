package plugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
	"github.com/prism-gpu/prism/test/fakes"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// testVersion is the program's version in tests.
const testVersion = "test"

// wired is a node with two simulated GPUs, and the adapters of its plugin.
type wired struct {
	cfg      *config.Plugin
	adapters Adapters
	model    *model.Node
	client   *fake.Clientset
	events   fakes.Events
	tool     *recordedTool
	slices   *recordedSlices
	options  prepare.Options // of the transaction
	// occupied: another component allocates the GPUs.
	occupied atomic.Bool
}

// wiredHost is the host of a wired.
type wiredHost struct {
	*port.Host
	port.MinimalHost
	node *wired
}

// Sockets finds another DRA driver while the node is occupied.
func (h wiredHost) Sockets(dir, pattern string) ([]string, error) {
	if !h.node.occupied.Load() {
		return nil, nil
	}
	return []string{filepath.Join(dir, pattern)}, nil
}

// reportingStep is a step with data for the status of claims, and metrics.
type reportingStep struct{ prepare.Step }

func (reportingStep) Status(s checkpoint.Step) map[string]any {
	return map[string]any{"step": s.Kind}
}

func (reportingStep) Metrics() []prepare.Metric {
	return []prepare.Metric{{Name: "prism_step", Help: "A step.", Read: func() float64 { return 5 }}}
}

// transaction makes the product's transaction, with a step that reports, and keeps its options.
func (n *wired) transaction(ports prepare.Ports, options prepare.Options) (*prepare.Transaction, []error, error) {
	n.options = options
	ports.Steps[claim.StepInterval] = reportingStep{ports.Steps[claim.StepInterval]}
	return prepare.New(ports, options)
}

// recordedTool records the intervals that are set.
type recordedTool struct {
	mu  sync.Mutex
	set []gpu.Interval
}

func (r *recordedTool) SetTimeslice(_ context.Context, _ gpu.UUID, interval gpu.Interval) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set = append(r.set, interval)
	return nil
}

// count counts how often an interval was set.
func (r *recordedTool) count(of gpu.Interval) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, interval := range r.set {
		if interval == of {
			n++
		}
	}
	return n
}

// recordedSlices records the devices published while a process leads, and reports that taints were dropped.
type recordedSlices struct {
	mu      sync.Mutex
	leads   bool
	devices map[string]resourceapi.Device
}

func (r *recordedSlices) Publish(resources resourceslice.DriverResources) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.devices = map[string]resourceapi.Device{}
	for _, pool := range resources.Pools {
		for _, slice := range pool.Slices {
			for _, device := range slice.Devices {
				r.devices[device.Name] = device
			}
		}
	}
}

func (r *recordedSlices) Run(ctx context.Context, dropped func(kube.DroppedFields)) error {
	r.mu.Lock()
	r.leads = true
	r.mu.Unlock()
	dropped(kube.DroppedFields{Features: []string{"DRADeviceTaints"}})
	<-ctx.Done()
	return nil
}

func (r *recordedSlices) Stats() kube.SlicesStats { return kube.SlicesStats{Errors: 3} }

// published lists the published devices while a process leads.
func (r *recordedSlices) published() map[string]resourceapi.Device {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leads {
		return nil
	}
	return r.devices
}

const wiredConfig = "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: [{modes: [%s], timeSlice: {replicas: 3, interval: %s}}]\n"

// configMap contains the node's configuration with these modes and that interval.
func configMap(modes string, interval gpu.Interval) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nodes"},
		Data:       map[string]string{"default": fmt.Sprintf(wiredConfig, modes, interval)},
	}
}

// newWired returns a node whose GPUs are advertised whole and in time-sliced shares.
func newWired(t *testing.T) *wired {
	t.Helper()
	node, err := model.New(model.Uniform("n0", "h100-80", 2))
	require.NoError(t, err)
	client := fake.NewClientset(configMap("whole, timeslice", gpu.IntervalLong))
	n := &wired{model: node, client: client, events: make(fakes.Events, 256), tool: &recordedTool{}, slices: &recordedSlices{}}
	n.cfg, n.adapters = oneGPUNode(t, client)
	n.cfg.NodeConfig = config.NodeConfig{Map: "ns/nodes", Name: "default"}
	n.adapters.Host = wiredHost{port.NewHost(node), port.MinimalHost{Boot: "boot"}, n}
	n.adapters.Driver = func(string) inventory.Opener { return port.NewHost(node).Open }
	n.adapters.Transaction = n.transaction
	n.adapters.Tool = func(*inventory.Inventory) timeslice.Tool { return n.tool }
	n.adapters.API = func(ctx context.Context) (API, error) {
		api := NewAPI(ctx, APIOptions{Config: n.cfg, Claims: client, Background: client, Events: n.events})
		api.Slices, api.Cluster = n.slices, supportive{api.Cluster}
		return api, nil
	}
	return n
}

// supportive is a cluster with all features, whose claims are without devices.
type supportive struct{ Cluster }

func (supportive) PartitionableDevices(context.Context) (bool, error) { return true, nil }

func (supportive) DeviceTaints(context.Context) (bool, error) { return true, nil }

func (supportive) CountsShares(context.Context) (bool, error) { return true, nil }

func (supportive) Allocated(context.Context, kube.AllocatedQuery) (*kube.AllocatedPage, error) {
	return &kube.AllocatedPage{}, nil
}

// build builds the plugin, and closes it when the test ends.
func (n *wired) build(t *testing.T) *Plugin {
	t.Helper()
	p, err := Build(t.Context(), n.cfg, n.adapters)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

// device is the name of a GPU's device.
func (n *wired) device(i int) string { return "gpu-" + n.model.Identities()[i].UUID[4:12] }

// claim returns a claim in the API server with an allocated GPU and an interval.
func (n *wired) claim(t *testing.T, name string, device int) *resourceapi.ResourceClaim {
	t.Helper()
	rc := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{
				Request: "gpu", Driver: n.cfg.DriverName, Pool: "n0/" + n.device(device), Device: n.device(device),
			}},
			Config: []resourceapi.DeviceAllocationConfiguration{{
				Source: resourceapi.AllocationConfigSourceClaim,
				DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
					Driver: n.cfg.DriverName, Parameters: runtime.RawExtension{Raw: []byte(
						`{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","sharing":{"timeSlicing":{"interval":"Short"}}}`,
					)},
				}},
			}},
		}}},
	}
	require.NoError(t, n.client.Tracker().Add(rc))
	return rc
}

// prepared makes the kubelet's call for a claim.
func prepared(ctx context.Context, p *Plugin, rc *resourceapi.ResourceClaim) error {
	answers, err := p.Kubelet().PrepareResourceClaims(ctx, []*resourceapi.ResourceClaim{rc})
	if err != nil {
		return err
	}
	return answers[rc.UID].Err
}

// unprepared makes the kubelet's call for a claim.
func unprepared(ctx context.Context, p *Plugin, rc *resourceapi.ResourceClaim) error {
	errs, err := p.Kubelet().UnprepareResourceClaims(ctx, []kubeletplugin.NamespacedObject{{
		NamespacedName: types.NamespacedName{Namespace: rc.Namespace, Name: rc.Name}, UID: rc.UID,
	}})
	if err != nil {
		return err
	}
	return errs[rc.UID]
}

// status is the status of the devices of a claim.
func (n *wired) status(t *testing.T, rc *resourceapi.ResourceClaim) []resourceapi.AllocatedDeviceStatus {
	t.Helper()
	stored, err := n.client.ResourceV1().ResourceClaims(rc.Namespace).Get(t.Context(), rc.Name, metav1.GetOptions{})
	require.NoError(t, err)
	return stored.Status.Devices
}

// metric is the sum of a metric's series, of a histogram its count.
func (n *wired) metric(t *testing.T, p *Plugin, name string) (sum float64) {
	t.Helper()
	families, err := p.serving.http.Metrics.Gatherer().Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.Metric {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		return sum
	}
	require.Fail(t, "no metric "+name)
	return 0
}

// eventually waits until something is so.
func eventually(t *testing.T, so func() bool, what string) {
	t.Helper()
	require.Eventually(t, so, time.Minute, 5*time.Millisecond, what)
}

// record writes the file of a record.
func (n *wired) record(t *testing.T, uid, text string) (path string) {
	t.Helper()
	path = filepath.Join(n.cfg.PluginDir(), "claims", uid+".json")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
