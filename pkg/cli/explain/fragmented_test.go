package explain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/controller/classes"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
	"github.com/prism-gpu/prism/test/allocator"
)

const prismDriver = "gpu.prism.dev"

// fragments is a cluster whose pods get their devices from the scheduler's allocator, one after the other.
type fragments struct {
	t       *testing.T
	store   *clusterview.Store
	classes []string
	slices  map[string]*resourceapi.ResourceSlice
	// asks keeps compiled expressions.
	asks *explain.Solver
}

func newFragments(t *testing.T) *fragments {
	t.Helper()
	f := &fragments{t: t, store: clusterview.NewStore(), slices: map[string]*resourceapi.ResourceSlice{}}
	f.store.SetScope(clusterview.Scope{Nodes: true, TaintRules: true})
	for name, kind := range map[string]gpu.DeviceType{
		prismDriver: gpu.TypeGPU, "mig." + prismDriver: gpu.TypeMIG, "mps." + prismDriver: gpu.TypeMPS, "timeslice." + prismDriver: gpu.TypeTimeSlice,
	} {
		f.class(name, fmt.Sprintf("device.driver == %q && device.attributes[%q].type == %q", prismDriver, prismDriver, kind))
	}
	f.store.PutClass(&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "by-capacity." + prismDriver}})
	return f
}

func (f *fragments) class(name string, expression string) {
	f.classes = append(f.classes, name)
	f.store.PutClass(&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
	}})
}

// modes are the modes of a GPU.
type modes func(g *gpu.GPU) gpu.Modes

// partitioned advertises a GPU as a whole and in all profiles.
func partitioned(g *gpu.GPU) gpu.Modes { return gpu.Modes{Whole: true, MIG: g.MIG.ProfileNames()} }

// node adds a node with GPUs of one model.
func (f *fragments) node(name, board string, gpus int, of modes) {
	f.t.Helper()
	hardware := explain.Machine(f.t, name, board, gpus)
	layout := gpu.Layout{}
	for i := range hardware.GPUs {
		g := &hardware.GPUs[i]
		layout[g.UUID] = of(g)
		for _, profile := range layout[g.UUID].MIG {
			f.class(classes.ProfileClass(prismDriver, profile))
		}
	}
	f.store.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}})
	for _, slice := range explain.Published(publish.Options{DriverName: prismDriver, NodeName: name, Layout: layout}, hardware) {
		f.slices[slice.Name] = slice
		f.store.PutSlice(slice)
	}
}

// solver returns a Solver for the cluster as it is.
func (f *fragments) solver() *explain.Solver {
	if f.asks == nil {
		f.asks = explain.NewSolver(nil, allocator.Features)
	}
	f.asks.Cluster = f.store.Cluster()
	return f.asks
}

// object is a pod with a claim for one device.
type object struct {
	pod   *corev1.Pod
	claim *resourceapi.ResourceClaim
}

// pod adds a waiting pod with a claim for one device of a class.
func (f *fragments) pod(name, class string) *object {
	return f.podFor(name, &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1})
}

// podByCapacity adds a waiting pod with a claim for a MIG device of a profile, without expressions.
func (f *fragments) podByCapacity(name, profile string) *object {
	capacity := resourceapi.QualifiedName(prismDriver + "/" + publish.ProfileCapacity(profile))
	return f.podFor(name, &resourceapi.ExactDeviceRequest{
		DeviceClassName: "by-capacity." + prismDriver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{capacity: resource.MustParse("1")}},
	})
}

// podFor adds a waiting pod of a ReplicaSet with a claim from a template.
func (f *fragments) podFor(name string, exactly *resourceapi.ExactDeviceRequest) *object {
	yes := true
	claimName, template := name+"-gpu", "gpu"
	o := &object{
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ml", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name + "-rs", Controller: &yes}},
			},
			Spec: corev1.PodSpec{
				Containers:     []corev1.Container{{Name: "main"}},
				ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodPending, ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &claimName}}},
		},
		claim: &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ml", Name: claimName, UID: types.UID("uid-" + claimName),
				Annotations:     map[string]string{resourceapi.PodResourceClaimAnnotation: "gpu"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID("uid-" + name), Controller: &yes}},
			},
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: exactly}}}},
		},
	}
	f.put(o)
	return o
}

func (f *fragments) put(o *object) {
	f.store.PutPod(o.pod)
	f.store.PutClaim(o.claim)
}

func (f *fragments) remove(o *object) {
	f.store.DeletePod(o.pod.Namespace, o.pod.Name)
	f.store.DeleteClaim(o.claim.Namespace, o.claim.Name)
}

// run places a pod on a node with the scheduler's allocator; false if it does not fit there.
func (f *fragments) run(o *object, node string) bool {
	f.t.Helper()
	s := f.solver()
	found, err := s.Allocate(f.t.Context(), explain.Question{Node: s.Cluster.FindNode(node), Claims: []*resourceapi.ResourceClaim{o.claim}})
	require.NoError(f.t, err)
	if found == nil {
		return false
	}
	f.bind(o, node, &found[0])
	return true
}

// bind places a pod with an allocation.
func (f *fragments) bind(o *object, node string, allocation *resourceapi.AllocationResult) {
	o.claim.Status.Allocation = allocation
	o.claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: o.pod.Name, UID: o.pod.UID}}
	o.pod.Spec.NodeName, o.pod.Status.Phase = node, corev1.PodRunning
	f.put(o)
}

// on places a new pod, whose class is for a profile, on a device whose name ends in a text such as "-mig-19-5".
func (f *fragments) on(name, profile, node, end string) *object {
	f.t.Helper()
	class, _ := classes.ProfileClass(prismDriver, profile)
	o := f.pod(name, class)
	for _, slice := range f.slices {
		for i := range slice.Spec.Devices {
			if d := slice.Spec.Devices[i].Name; *slice.Spec.NodeName == node && strings.HasSuffix(d, end) {
				f.bind(o, node, &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
					{Request: "gpu", Driver: prismDriver, Pool: slice.Spec.Pool.Name, Device: d},
				}}})
				return o
			}
		}
	}
	require.Fail(f.t, "no such device", end)
	return nil
}

// profileClass is the class of a profile.
func profileClass(profile string) string {
	name, _ := classes.ProfileClass(prismDriver, profile)
	return name
}
