package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

const (
	driver = "gpu.prism.dev"
	gib    = int64(1) << 30
	// now is the time of the tests, in seconds since 1970.
	now = int64(1_800_000_000)
)

// latest are the features of Kubernetes 1.37.
var latest = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
	FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true,
}

var machines struct {
	sync.Mutex
	known map[string]*gpu.Node
}

// Machine is a simulated node as the plugin's inventory discovers it. All tests share it.
func Machine(t *testing.T, name, board string, count int) *gpu.Node {
	t.Helper()
	machines.Lock()
	defer machines.Unlock()
	key := fmt.Sprint(name, " ", board, " ", count)
	if n := machines.known[key]; n != nil {
		return n
	}
	n, err := model.New(model.Uniform(name, board, count))
	require.NoError(t, err)
	host := port.NewHost(n)
	inv := inventory.New(inventory.Options{Host: host, Open: host.Open})
	require.NoError(t, inv.Refresh(t.Context()))
	if machines.known == nil {
		machines.known = map[string]*gpu.Node{}
	}
	machines.known[key] = inv.Current().Node
	return machines.known[key]
}

// world is a cluster in the making.
type world struct {
	t        *testing.T
	store    *clusterview.Store
	features structured.Features
	driver   string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: clusterview.NewStore(), features: latest, driver: driver}
	w.store.SetScope(clusterview.Scope{Nodes: true, TaintRules: true})
	for _, kind := range []string{"mig", "mps", "timeslice"} {
		w.class(kind+"."+driver, ofType(kind))
	}
	w.class(driver, ofType("gpu"))
	for _, profile := range []string{"1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"} {
		w.class("mig-"+strings.ReplaceAll(profile, ".", "-")+"."+driver, ofType("mig")+fmt.Sprintf(` && %s == %q`, attr("profile"), profile))
	}
	w.class("by-capacity." + driver)
	return w
}

func ofType(kind string) string {
	return fmt.Sprintf(`device.driver == %q && device.attributes[%q].type == %q`, driver, driver, kind)
}

// attr is an expression of an attribute of the driver.
func attr(name string) string { return fmt.Sprintf("device.attributes[%q].%s", driver, name) }

func (w *world) class(name string, expressions ...string) *resourceapi.DeviceClass {
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	class.Spec.Selectors = selectors(expressions...)
	w.store.PutClass(class)
	return class
}

func selectors(expressions ...string) (all []resourceapi.DeviceSelector) {
	for _, e := range expressions {
		all = append(all, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: e}})
	}
	return all
}

// modes choose how a GPU is advertised.
type modes func(i int, g *gpu.GPU) gpu.Modes

func whole(int, *gpu.GPU) gpu.Modes { return gpu.Modes{Whole: true} }

// migModes advertises all profiles, and the whole GPU.
func migModes(profiles ...string) modes {
	return func(_ int, g *gpu.GPU) gpu.Modes {
		if len(profiles) == 0 {
			return gpu.Modes{Whole: true, MIG: g.MIG.ProfileNames()}
		}
		return gpu.Modes{Whole: true, MIG: profiles}
	}
}

func mpsModes(replicas int) modes {
	return func(_ int, g *gpu.GPU) gpu.Modes {
		total := int64(g.Capacity.MemoryBytes) / gib * gib
		return gpu.Modes{Whole: true, MPS: &gpu.MPSSharing{ShareName: "gpu-mps", MPSSize: gpu.MPSSize{
			Replicas: replicas, Threads: gpu.MPSThreads{Total: 100},
			Memory: gpu.MPSMemory{Total: total, Default: 4 * gib, Min: gib, Max: total, Step: gib},
		}}}
	}
}

func timeSliceModes(replicas int) modes {
	return func(int, *gpu.GPU) gpu.Modes {
		return gpu.Modes{Whole: true, TimeSlice: &gpu.Replicas{Count: replicas, ShareName: "gpu-shared"}}
	}
}

// node adds a node with GPUs of one board.
func (w *world) node(name, board string, count int, m modes, taints ...publish.TaintRule) *gpu.Node {
	w.t.Helper()
	n := Machine(w.t, name, board, count)
	opts := publish.Options{DriverName: w.driver, NodeName: name, Layout: gpu.Layout{}, Taints: taints}
	for i := range n.GPUs {
		opts.Layout[n.GPUs[i].UUID] = m(i, &n.GPUs[i])
	}
	for _, slice := range Published(opts, n) {
		w.slice(slice)
	}
	w.object(name, func(*corev1.Node) {})
	return n
}

// Published are the ResourceSlices of a node as its plugin publishes them.
func Published(opts publish.Options, n *gpu.Node) (all []*resourceapi.ResourceSlice) {
	pools := publish.Resources(opts, n).Pools
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		for i, s := range pools[pool].Slices {
			all = append(all, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%02d", strings.ReplaceAll(pool, "/", "-"), i)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: opts.DriverName, NodeName: &opts.NodeName, Devices: s.Devices, SharedCounters: s.SharedCounters,
					Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(len(pools[pool].Slices))},
				},
			})
		}
	}
	return all
}

func (w *world) slice(s *resourceapi.ResourceSlice) { w.store.PutSlice(s) }

// object adds or replaces a Node.
func (w *world) object(name string, edit func(*corev1.Node)) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	n.Status.Allocatable = corev1.ResourceList{
		"cpu": resource.MustParse("64"), "memory": resource.MustParse("512Gi"), "pods": resource.MustParse("110"),
	}
	edit(n)
	w.store.PutNode(n)
}

// request is for devices of a class.
func request(class string, count int64, expressions ...string) *resourceapi.ExactDeviceRequest {
	return &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count, Selectors: selectors(expressions...),
	}
}

// sized adds amounts of capacities to a request: pairs of names and amounts.
func sized(r *resourceapi.ExactDeviceRequest, amounts ...string) *resourceapi.ExactDeviceRequest {
	r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
	for pair := range slices.Chunk(amounts, 2) {
		r.Capacity.Requests[resourceapi.QualifiedName(pair[0])] = resource.MustParse(pair[1])
	}
	return r
}

func claimOf(namespace, name string, requests ...*resourceapi.ExactDeviceRequest) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), CreationTimestamp: metav1.Unix(now-3*24*3600, 0),
	}}
	for i, r := range requests {
		n := "gpu"
		if i > 0 {
			n = fmt.Sprintf("gpu%d", i+1)
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourceapi.DeviceRequest{Name: n, Exactly: r})
	}
	return c
}

// podOf is a Pending pod with claims.
func podOf(namespace, name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), CreationTimestamp: metav1.Unix(now-14*60, 0),
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}, SchedulerName: corev1.DefaultSchedulerName},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c, ResourceClaimName: &c})
	}
	return p
}

// solver returns a Solver for the present state.
func (w *world) solver() *Solver { return NewSolver(w.store.Cluster(), w.features) }

// hold allocates a claim on a node to running pods.
func (w *world) hold(node string, claim *resourceapi.ResourceClaim, pods ...*corev1.Pod) {
	w.t.Helper()
	require.True(w.t, w.tryHold(node, claim, pods...), "claim %s does not fit on %s", claim.Name, node)
}

func (w *world) tryHold(node string, claim *resourceapi.ResourceClaim, pods ...*corev1.Pod) bool {
	w.t.Helper()
	s := w.solver()
	found, err := s.Allocate(context.Background(), Question{Node: s.Cluster.FindNode(node), Claims: []*resourceapi.ResourceClaim{claim}})
	require.NoError(w.t, err)
	if found == nil {
		return false
	}
	claim.Status.Allocation = &found[0]
	for _, p := range pods {
		p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
		consumer := resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID}
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, consumer)
		w.store.PutPod(p)
	}
	w.store.PutClaim(claim)
	return true
}

// use allocates a claim with one request to one pod; both have the same name.
func (w *world) use(node, namespace, name string, r *resourceapi.ExactDeviceRequest) {
	w.t.Helper()
	w.hold(node, claimOf(namespace, name+"-gpu", r), podOf(namespace, name, name+"-gpu"))
}

// pending adds a pod that waits with claims of one request each, and explains it.
func (w *world) pending(name string, requests ...*resourceapi.ExactDeviceRequest) *Explanation {
	w.t.Helper()
	c := claimOf("ml", name+"-gpu", requests...)
	w.store.PutClaim(c)
	w.store.PutPod(podOf("ml", name, c.Name))
	return w.explain(name)
}

func (w *world) options() Options { return Options{Driver: driver, Now: now, PerNode: perNode} }

func (w *world) explain(name string) *Explanation {
	w.t.Helper()
	e, err := w.ask(name, w.options())
	require.NoError(w.t, err)
	return e
}

func (w *world) ask(name string, o Options) (*Explanation, error) {
	s := w.solver()
	pod := s.Cluster.FindPod("ml", name)
	require.NotNil(w.t, pod)
	return Pod(context.Background(), s, pod, o)
}

// perNode is the limit of the commands; no search of the tests takes as long.
func perNode(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Minute)
}
