package clusterview_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// plain returns a ResourceSlice of a node with devices of these names.
func plain(name, pool string, generation, count int64, names ...string) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
		Driver: driver, NodeName: new("n1"), Pool: resourceapi.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: count},
	}}
	for _, name := range names {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: name})
	}
	return s
}

// tracked returns the ResourceSlices as the scheduler sees them.
func tracked(t *testing.T, objects ...runtime.Object) map[string]*resourceapi.ResourceSlice {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	tracking, err := tracker.StartTracker(ctx, tracker.Options{
		EnableDeviceTaintRules: true, SliceInformer: factory.Resource().V1().ResourceSlices(), TaintInformer: factory.Resource().V1().DeviceTaintRules(),
	})
	require.NoError(t, err)
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
		tracking.Stop()
	})
	factory.WaitForCacheSync(ctx.Done())
	select {
	case <-tracking.HasSyncedChecker().Done():
	case <-ctx.Done():
		require.NoError(t, ctx.Err())
	}
	list, err := tracking.ListPatchedResourceSlices()
	require.NoError(t, err)
	all := map[string]*resourceapi.ResourceSlice{}
	for _, slice := range list {
		all[slice.Name] = slice
	}
	return all
}

func TestSlices_TaintRules_AsTracker(t *testing.T) {
	t.Parallel()
	store := clusterview.NewStore()
	var objects []runtime.Object
	for _, slice := range published(t, "mig-h100-80") {
		store.PutSlice(slice)
		objects = append(objects, slice)
	}
	foreign := plain("foreign", "node-1", 1, 1, "gpu-bc8c6223", "nic")
	foreign.Spec.Driver = "nic.example.com"
	foreign.Spec.Devices[1].Taints = []resourceapi.DeviceTaint{{Key: "own", Effect: "NoExecute", TimeAdded: new(metav1.Unix(7, 0))}}
	store.PutSlice(foreign)
	objects = append(objects, foreign)
	pick := func(i, bit int, value string) *string {
		if i>>bit&1 == 0 {
			return nil
		}
		return &value
	}
	for i := range 8 { // all combinations of driver, pool and device
		rule := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("r", i)}, Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{
				Driver: pick(i, 0, driver), Pool: pick(i, 1, "node-1/gpu-bc8c6223"), Device: pick(i, 2, "gpu-bc8c6223-mig-19-6"),
			},
			Taint: resourceapi.DeviceTaint{Key: fmt.Sprint("k", i), Value: "v", Effect: "NoSchedule", TimeAdded: new(metav1.Unix(int64(i), 0))},
		}}
		store.PutRule(rule)
		objects = append(objects, rule)
	}
	one := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Device: new("gpu-bc8c6223")}, Taint: resourceapi.DeviceTaint{Key: "one"},
	}}
	store.PutRule(one)
	objects = append(objects, one)
	none := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: resourceapi.DeviceTaintRuleSpec{Taint: resourceapi.DeviceTaint{Key: "none"}}}
	store.PutRule(none)
	objects = append(objects, none)

	want, taints := tracked(t, objects...), 0
	for _, p := range pools(store.Cluster()) {
		for _, got := range p.Slices() {
			of := want[got.Name]
			require.NotNil(t, of)
			delete(want, got.Name)
			for i := range got.Spec.Devices {
				assert.ElementsMatch(t, of.Spec.Devices[i].Taints, got.Spec.Devices[i].Taints, got.Spec.Devices[i].Name)
				taints += len(got.Spec.Devices[i].Taints)
				got.Spec.Devices[i].Taints, of.Spec.Devices[i].Taints = nil, nil
			}
			assert.True(t, apiequality.Semantic.DeepEqual(of.Spec, got.Spec))
		}
	}
	assert.Empty(t, want)
	assert.Greater(t, taints, 100)
	// The same taints are counted by GPU.
	for _, gpu := range store.Cluster().GPUs(driver) {
		byKey := map[string]int{}
		for _, taint := range gpu.Taints {
			byKey[taint.Key] = taint.Devices
		}
		if gpu.Name == "gpu-bc8c6223" {
			total := gpu.Devices["gpu"] + gpu.Devices["mig"]
			assert.Equal(t, map[string]int{"k0": total, "k1": total, "k2": total, "k3": total, "k4": 1, "k5": 1, "k6": 1, "k7": 1, "one": 1}, byKey)
		} else {
			assert.Equal(t, map[string]int{"k0": gpu.Devices["gpu"] + gpu.Devices["mig"], "k1": gpu.Devices["gpu"] + gpu.Devices["mig"]}, byKey)
		}
	}
}

func TestPools_Generations_OnlyTheNewest(t *testing.T) {
	t.Parallel()
	store := clusterview.NewStore()
	store.PutSlice(plain("a", "p", 1, 1, "gpu-1"))
	store.PutSlice(plain("b", "p", 3, 2, "gpu-2"))
	store.PutSlice(plain("c", "p", 3, 2, "gpu-3"))
	store.PutSlice(plain("d", "p", 2, 1, "gpu-4"))
	c := store.Cluster()
	require.Len(t, c.Nodes[0].Pools, 1)
	p := c.Nodes[0].Pools[0]
	assert.Equal(t, []string{"gpu-2", "gpu-3"}, devices(p))
	assert.Equal(t, int64(3), p.Generation)
	assert.Equal(t, clusterview.PoolComplete, p.State)
	assert.Same(t, c.Nodes[0], p.Node)

	store.PutSlice(plain("e", "p", 4, 2, "gpu-5"))
	p = store.Cluster().Nodes[0].Pools[0]
	assert.Equal(t, []string{"gpu-5"}, devices(p))
	assert.Equal(t, clusterview.PoolIncomplete, p.State)
	assert.Equal(t, "pool p has 1 of 2 ResourceSlices of generation 4", p.Problem)
}

func TestPools_Invalid_SameAsAllocator(t *testing.T) {
	t.Parallel()
	counted := func(set, counter string) *resourceapi.ResourceSlice {
		s := plain("b", "p", 1, 2, "gpu-1")
		s.Spec.Devices[0].ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: set, Counters: map[string]resourceapi.Counter{counter: {}}}}
		return s
	}
	sets := func(names ...string) *resourceapi.ResourceSlice {
		s := plain("a", "p", 1, 2)
		for _, name := range names {
			s.Spec.SharedCounters = append(s.Spec.SharedCounters, resourceapi.CounterSet{Name: name, Counters: map[string]resourceapi.Counter{"m": {}}})
		}
		return s
	}
	for problem, published := range map[string][]*resourceapi.ResourceSlice{
		"":                                      {sets("gpu-1"), counted("gpu-1", "m")},
		"pool p has several devices gpu-1":      {plain("a", "p", 1, 2, "gpu-1"), plain("b", "p", 1, 2, "gpu-1")},
		"pool p has several counter sets gpu-1": {sets("gpu-1", "gpu-1"), counted("gpu-1", "m")},
		"pool p does not have counter set gpu-2, which device gpu-1 consumes":      {sets("gpu-1"), counted("gpu-2", "m")},
		"pool p does not have counter x of set gpu-1, which device gpu-1 consumes": {sets("gpu-1"), counted("gpu-1", "x")},
		"pool p has 1 of 2 ResourceSlices of generation 1":                         {plain("a", "p", 1, 2, "gpu-1")},
	} {
		store := clusterview.NewStore()
		for _, slice := range published {
			store.PutSlice(slice)
		}
		for range 2 { // the second picture is the same
			p := store.Cluster().Nodes[0].Pools[0]
			assert.Equal(t, problem, p.Problem)
			assert.Equal(t, problem == "", p.State == clusterview.PoolComplete)
			assert.Equal(t, problem == "", answer(t, newCache(), p, "true") != "none", problem)
		}
	}
}

func TestPools_Order_AsAllocator(t *testing.T) {
	t.Parallel()
	store := clusterview.NewStore()
	bound := plain("s0", "a", 1, 1, "gpu-0")
	bound.Spec.Devices[0].BindingConditions = []string{"ready"}
	store.PutSlice(bound)
	store.PutSlice(plain("s1", "p-2", 1, 1, "gpu-2"))
	store.PutSlice(plain("s2", "p-10", 1, 1, "gpu-10"))
	first := plain("s3", "z", 1, 1, "gpu-z")
	first.Spec.Driver = "a.example.com"
	store.PutSlice(first)
	shared := plain("s4", "fabric", 1, 1, "x")
	shared.Spec.NodeName, shared.Spec.AllNodes = nil, new(true)
	store.PutSlice(shared)
	c := store.Cluster()
	var names []string
	for _, p := range c.FindNode("n1").Pools {
		names = append(names, p.Name)
	}
	assert.Equal(t, []string{"z", "p-10", "p-2", "a"}, names)
	require.Len(t, c.Shared, 1)
	assert.Nil(t, c.Shared[0].Node)
}

func TestClaims_PodsAndClaims_Connected(t *testing.T) {
	t.Parallel()
	store := clusterview.NewStore()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "train", UID: "u1"}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{
		{Name: "b", ResourceClaimName: new("shared")}, {Name: "a", ResourceClaimName: new("own")}, {Name: "again", ResourceClaimName: new("own")},
		{Name: "missing", ResourceClaimName: new("missing")}, {Name: "made", ResourceClaimTemplateName: new("t")},
	}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "made", ResourceClaimName: new("made")}}
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended"}
	store.PutPod(pod)
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "train", UID: "u1", Controller: new(true)}}
	for name, owners := range map[string][]metav1.OwnerReference{"own": nil, "shared": nil, "extended": owner, "made": {{UID: "former", Controller: new(true)}}} {
		claim := allocated(name)
		claim.OwnerReferences = owners
		claim.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
		claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Data: &runtime.RawExtension{Raw: []byte("{}")}}}
		if name == "shared" {
			claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
				{Resource: "pods", Name: "train", UID: "u0"}, {Resource: "pods", Name: "train", UID: "u1"}, {APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "g"},
			}
		}
		store.PutClaim(claim)
	}
	c := store.Cluster()
	found := c.FindPod("ml", "train")
	var names []string
	for _, claim := range found.Claims {
		names = append(names, claim.Name)
	}
	assert.Equal(t, []string{"shared", "own", "extended"}, names, "a claim of a former pod of the name is not the pod's")
	shared := c.FindClaim("ml", "shared")
	require.Len(t, shared.Pods, 2)
	assert.Equal(t, types.UID("u0"), shared.Pods[0].UID)
	assert.Equal(t, "ml", shared.Pods[0].Namespace)
	assert.Same(t, found, shared.Pods[1])
	assert.Empty(t, shared.ManagedFields)
	assert.Nil(t, shared.Status.Devices[0].Data)
	assert.Nil(t, c.FindClaim("ml", "x"))
	assert.Nil(t, c.FindPod("x", "train"))
	assert.Nil(t, c.FindNode("x"))
}

func TestClaims_PodNotRead_SharedByItsClaims(t *testing.T) {
	t.Parallel()
	store := clusterview.NewStore()
	for name, uid := range map[string]types.UID{"a": "u1", "b": "u1", "c": "u2"} {
		claim := allocated(name)
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: uid}}
		store.PutClaim(claim)
	}
	c := store.Cluster()
	a, b := c.FindClaim("ml", "a"), c.FindClaim("ml", "b")
	assert.Same(t, a.Pods[0], b.Pods[0])
	assert.Equal(t, []*clusterview.Claim{a, b}, a.Pods[0].Claims)
	assert.NotSame(t, a.Pods[0], c.FindClaim("ml", "c").Pods[0])
}

func TestStore_LongAnnotations_DroppedFromNamespacedObjects(t *testing.T) {
	t.Parallel()
	store := clusterview.NewStore()
	meta := metav1.ObjectMeta{Namespace: "ml", Name: "a", Annotations: map[string]string{
		"short": strings.Repeat("x", 256), "long": strings.Repeat("x", 257), corev1.LastAppliedConfigAnnotation: "{}",
	}}
	store.PutPod(&corev1.Pod{ObjectMeta: meta})
	store.PutClaim(&resourceapi.ResourceClaim{ObjectMeta: meta})
	of := meta.DeepCopy()
	of.Namespace = ""
	store.PutNode(&corev1.Node{ObjectMeta: *of})
	c := store.Cluster()
	assert.Equal(t, []string{"short"}, slices.Collect(maps.Keys(c.FindPod("ml", "a").Annotations)))
	assert.Equal(t, []string{"short"}, slices.Collect(maps.Keys(c.FindClaim("ml", "a").Annotations)))
	assert.ElementsMatch(t, []string{"short", "long"}, slices.Collect(maps.Keys(c.FindNode("a").Object.Annotations)), "administrators write them")
	assert.Len(t, meta.Annotations, 3, "the object that was read is unchanged")
}

func TestCluster_LaterChanges_PictureStays(t *testing.T) {
	t.Parallel()
	store := nodesOf(t, "mig-h100-80", 2)
	store.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cpu-only"}})
	c := store.Cluster()
	require.Len(t, c.Nodes, 3)
	assert.Equal(t, "cpu-only", c.Nodes[0].Name)
	before := c.Nodes[1].Pools[1].Slices()
	for _, p := range pools(c) {
		for _, slice := range p.Slices() {
			store.DeleteSlice(slice.Name)
		}
	}
	store.DeleteNode("cpu-only")
	assert.Empty(t, store.Cluster().Nodes)
	assert.Equal(t, before, c.Nodes[1].Pools[1].Slices())
}
