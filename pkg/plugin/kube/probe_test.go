package kube_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// dropCounterSets and dropConsumption change a ResourceSlice like a server with the feature gate disabled.
func dropCounterSets(slice *resourceapi.ResourceSlice) { slice.Spec.SharedCounters = nil }

func dropConsumption(slice *resourceapi.ResourceSlice) {
	for i := range slice.Spec.Devices {
		slice.Spec.Devices[i].ConsumesCounters = nil
	}
}

func keepAll(*resourceapi.ResourceSlice) {}

// dryRuns responds to dry runs of creations like a server; nothing is stored.
func dryRuns(t *testing.T, client *fake.Clientset, drop func(*resourceapi.ResourceSlice), refusal error) *[]*resourceapi.ResourceSlice {
	t.Helper()
	var probed []*resourceapi.ResourceSlice
	client.PrependReactor("create", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateActionImpl)
		require.True(t, ok)
		require.Equal(t, []string{metav1.DryRunAll}, create.GetCreateOptions().DryRun, "nothing may be stored")
		slice, ok := create.GetObject().(*resourceapi.ResourceSlice)
		require.True(t, ok)
		probed = append(probed, slice.DeepCopy())
		if refusal != nil {
			return true, nil, refusal
		}
		drop(slice)
		return true, slice, nil
	})
	return &probed
}

func invalidSlice(causes ...*field.Error) error {
	return apierrors.NewInvalid(resourceapi.SchemeGroupVersion.WithKind("ResourceSlice").GroupKind(), "", causes)
}

func TestPartitionableDevices_Server_TrueOnlyIfAllStored(t *testing.T) {
	t.Parallel()
	invalid := invalidSlice(field.Invalid(field.NewPath("spec", "devices").Index(0).Child("consumesCounters"), nil, "no such counter set"))
	for name, c := range map[string]struct {
		drop    func(*resourceapi.ResourceSlice)
		refusal error
		stored  bool
		probed  int
	}{
		"all stored":           {drop: keepAll, stored: true, probed: 2},
		"all dropped":          {drop: func(s *resourceapi.ResourceSlice) { dropCounterSets(s); dropConsumption(s) }, probed: 1},
		"counter sets dropped": {drop: dropCounterSets, probed: 1},
		"consumption dropped":  {drop: dropConsumption, probed: 2},
		"counters refused":     {refusal: invalid, probed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid"}})
			probed := dryRuns(t, client, c.drop, c.refusal)
			stored, err := kube.Probe{Client: client, DriverName: driverName, NodeName: nodeName}.PartitionableDevices(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.stored, stored)
			assert.Len(t, *probed, c.probed)
		})
	}
}

func TestDeviceTaints_Server_StoredOrDropped(t *testing.T) {
	t.Parallel()
	const probing = "probing whether the API server stores device taints: "
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid"}}
	for name, c := range map[string]struct {
		nodes   []runtime.Object
		drop    func(*resourceapi.ResourceSlice)
		refusal error
		stored  bool
		want    string
	}{
		"stored":  {nodes: []runtime.Object{node}, drop: keepAll, stored: true},
		"dropped": {nodes: []runtime.Object{node}, drop: func(s *resourceapi.ResourceSlice) { s.Spec.Devices[0].Taints = nil }},
		"unavailable": {
			nodes: []runtime.Object{node}, drop: keepAll, refusal: apierrors.NewServiceUnavailable("the server is being upgraded"),
			want: probing + "creating a ResourceSlice as a dry run: the server is being upgraded",
		},
		"no node": {drop: keepAll, want: probing + `reading node node-1: nodes "node-1" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(c.nodes...)
			probed := dryRuns(t, client, c.drop, c.refusal)
			stored, err := kube.Probe{Client: client, DriverName: driverName, NodeName: nodeName}.DeviceTaints(t.Context())
			assert.Equal(t, c.stored, stored)
			if c.want != "" {
				require.EqualError(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.Len(t, *probed, 1)
			spec := (*probed)[0].Spec
			assert.Equal(t, nodeName+"/probe", spec.Pool.Name)
			assert.Equal(t, driverName, spec.Driver)
			assert.Equal(t, nodeName, *spec.NodeName)
		})
	}
}

// Admission policies for the real ResourceSlices apply to the probes.
func TestPartitionableDevices_Probes_LikeRealResourceSlices(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	probed := dryRuns(t, client, keepAll, nil)
	_, err := kube.Probe{Client: client, DriverName: driverName, NodeName: nodeName, NodeUID: "node-uid"}.PartitionableDevices(t.Context())
	require.NoError(t, err)
	require.Len(t, *probed, 2)
	assert.Len(t, client.Actions(), 2, "the node is not read if its UID is known")
	yes := true
	for i, slice := range *probed {
		assert.Equal(t, driverName, slice.Spec.Driver)
		assert.Equal(t, nodeName, *slice.Spec.NodeName)
		assert.Equal(t, resourceapi.ResourcePool{Name: nodeName + "/probe", Generation: 1, ResourceSliceCount: 2}, slice.Spec.Pool)
		assert.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: "node-uid", Controller: &yes}}, slice.OwnerReferences)
		assert.Equal(t, "probe-"+driverName+"-"+nodeName+"-", slice.GenerateName)
		assert.Equal(t, i == 0, len(slice.Spec.SharedCounters) == 1, "the API requires separate ResourceSlices for counters and devices")
		assert.Equal(t, i == 1, len(slice.Spec.Devices) == 1)
	}
	assert.Equal(t, (*probed)[0].Spec.SharedCounters[0].Name, (*probed)[1].Spec.Devices[0].ConsumesCounters[0].CounterSet)
}

func TestPartitionableDevices_ServerFails_Error(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid"}}
	const probing = "probing whether the API server stores shared counters: "
	for name, c := range map[string]struct {
		node    []runtime.Object
		refusal error
		want    string
	}{
		"unavailable": {
			[]runtime.Object{node}, apierrors.NewServiceUnavailable("the server is being upgraded"),
			probing + "creating a ResourceSlice as a dry run: the server is being upgraded",
		},
		"denied by a policy": {
			[]runtime.Object{node}, apierrors.NewForbidden(resourceapi.Resource("resourceslices"), "", errors.New("not this node")),
			probing + "creating a ResourceSlice as a dry run: resourceslices.resource.k8s.io is forbidden: not this node",
		},
		"invalid for a policy": {
			[]runtime.Object{node}, invalidSlice(field.Invalid(nil, nil, "not this node")),
			probing + `creating a ResourceSlice as a dry run: ResourceSlice.resource.k8s.io "" is invalid: <nil>: Invalid value: null: not this node`,
		},
		"another field is invalid": {
			[]runtime.Object{node}, invalidSlice(field.Required(field.NewPath("spec", "driver"), "")),
			probing + `creating a ResourceSlice as a dry run: ResourceSlice.resource.k8s.io "" is invalid: spec.driver: Required value`,
		},
		"no node": {nil, nil, probing + `reading node node-1: nodes "node-1" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(c.node...)
			dryRuns(t, client, keepAll, c.refusal)
			stored, err := kube.Probe{Client: client, DriverName: driverName, NodeName: nodeName}.PartitionableDevices(t.Context())
			assert.False(t, stored)
			require.EqualError(t, err, c.want)
			if c.refusal != nil {
				assert.ErrorIs(t, err, c.refusal)
			}
		})
	}
}

func TestDroppedFields_Features_CountersAndTaints(t *testing.T) {
	t.Parallel()
	for features, want := range map[[2]string]bool{
		{"DRAPartitionableDevices"}:                    true,
		{"DRADeviceTaints", "DRAPartitionableDevices"}: true,
		{"unknown"}:         true,
		{"DRADeviceTaints"}: false,
		{"DRADeviceTaints", "DRAConsumableCapacity"}: false,
	} {
		dropped := kube.DroppedFields{Features: features[:]}
		assert.Equal(t, want, dropped.Counters(), fmt.Sprint(features))
		assert.Equal(t, features[0] != "DRAPartitionableDevices", dropped.Taints(), fmt.Sprint(features))
	}
}

// partitioned is a node with one GPU that is advertised as full GPU and as MIG devices.
func partitioned(disjoint bool) resourceslice.DriverResources {
	half := gpu.MIGProfile{ID: 9, Name: "3g.40gb", Slices: 3, Placements: []gpu.Placement{{Start: 0, Size: 4}, {Start: 4, Size: 4}}}
	half.Capacity.MemoryBytes = 40 << 30
	node := &gpu.Node{GPUs: []gpu.GPU{{UUID: "GPU-3f2a9c1b-0000-0000-0000-000000000000", MIG: &gpu.MIG{Profiles: []gpu.MIGProfile{half}}}}}
	gpu.AssignIDs(node.GPUs)
	layout := gpu.Layout{node.GPUs[0].UUID: {Whole: true, MIG: []string{half.Name}}}
	if disjoint {
		layout = layout.Disjoint()
	}
	return publish.Resources(publish.Options{NodeName: nodeName, Layout: layout}, node)
}

// When the server no longer stores shared counters, the disjoint layout can be published at once.
func TestSlices_CountersDroppedAfterDowngrade_DisjointLayoutPublished(t *testing.T) {
	t.Parallel()
	server := newSliceServer(t)
	slices := kube.NewSlices(options(server))
	slices.Publish(partitioned(false))
	stop := startWith(t, slices, func(d kube.DroppedFields) {
		if d.Counters() {
			slices.Publish(partitioned(true))
		}
	})
	eventually(t, "the ResourceSlices are stored", func() bool { return len(server.stored(t)) == 3 })
	assert.Zero(t, slices.Stats().Dropped)

	server.dropCounters.Store(true)
	for _, slice := range server.stored(t) {
		require.NoError(t, server.Tracker().Delete(resourceapi.SchemeGroupVersion.WithResource("resourceslices"), "", slice.Name))
	}
	eventually(t, "the disjoint layout is stored", func() bool {
		stored := server.stored(t)
		devices := 0
		for i := range stored {
			devices += len(stored[i].Spec.Devices)
		}
		return len(stored) == 2 && devices == 1
	})
	stop()
	for _, slice := range server.stored(t) {
		for _, d := range slice.Spec.Devices {
			assert.NotContains(t, d.Name, "-mig-")
			assert.Equal(t, nodeName+"/gpu-3f2a9c1b", slice.Spec.Pool.Name)
		}
	}
	assert.Positive(t, slices.Stats().Dropped)
}
