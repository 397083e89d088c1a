package labels

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clienttesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/prism-gpu/prism/pkg/controller/classes"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestCache_ResourceSlices_BothControllersFacts: one cached object serves the DeviceClasses and the labels, and is reduced once.
func TestCache_ResourceSlices_BothControllersFacts(t *testing.T) {
	t.Parallel()
	options := classes.Cache(classes.Options{DriverName: driver})
	Cache(driver, options)
	var nodes, found int
	for object, by := range options.ByObject {
		switch object.(type) {
		case *corev1.Node:
			nodes++
		case *resourceapi.ResourceSlice:
			found++
			slice := published(t, "mig-h100-80")[2]
			want, pool := FactsOf(slice, driver), slice.Spec.Pool
			raw, err := json.Marshal(slice)
			require.NoError(t, err)
			once, err := by.Transform(slice)
			require.NoError(t, err)
			twice, err := by.Transform(once)
			require.NoError(t, err)
			assert.Equal(t, once, twice, "the cache may reduce an object again")
			small, _ := once.(*resourceapi.ResourceSlice)
			got, err := cachedFacts(small)
			require.NoError(t, err)
			assert.Equal(t, want, got)
			assert.Equal(t, []any{"node-1", pool}, []any{*small.Spec.NodeName, small.Spec.Pool})
			require.NotEmpty(t, small.Spec.Devices)
			assert.Equal(t, "mig", *small.Spec.Devices[0].Attributes[gpu.AttributeType].StringValue)
			cached, err := json.Marshal(small)
			require.NoError(t, err)
			assert.Less(t, len(cached)*5, len(raw), "8,000 GPUs fit into the memory of the controller")
		}
	}
	assert.Equal(t, []int{1, 1}, []int{nodes, found})
}

// TestFactsOf_QualifiedNames_Read: attributes may carry the driver's domain, and devices without a GPU count for nothing.
func TestFactsOf_QualifiedNames_Read(t *testing.T) {
	t.Parallel()
	plain := published(t, "t4")[0]
	qualified := plain.DeepCopy()
	for i := range qualified.Spec.Devices {
		attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
		for name, value := range plain.Spec.Devices[i].Attributes {
			attributes[driver+"/"+name] = value
		}
		qualified.Spec.Devices[i].Attributes = attributes
	}
	assert.Equal(t, FactsOf(plain, driver), FactsOf(qualified, driver))
	for _, kind := range []string{"monitor", "perfmon", "", "future"} {
		for i := range plain.Spec.Devices {
			plain.Spec.Devices[i].Attributes[gpu.AttributeType] = resourceapi.DeviceAttribute{StringValue: &kind}
		}
		assert.Empty(t, FactsOf(plain, driver).GPUs, kind)
	}
}

// TestReduceNode_ManyLabels_OnlyOwnKept: the cache holds little of each Node.
func TestReduceNode_ManyLabels_OnlyOwnKept(t *testing.T) {
	t.Parallel()
	node := newNode()
	node.Name, node.UID, node.ResourceVersion = "n1", "u", "7"
	node.Labels = map[string]string{"kubernetes.io/os": "linux", keyCount: "4", "nvidia.com/gpu.machine": "DGX"}
	node.Annotations = map[string]string{"a": "b"}
	node.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/os":{}}}}`)},
		{Manager: Manager(driver), Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:nvidia.com/gpu.count":{}}}}`)},
		{Manager: Manager(driver), Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:nvidia.com/gpu.family":{}}},"f:spec":{"f:taints":{}}}`)},
		{Manager: "empty"},
	}
	reduced, err := reduceNode(node)
	require.NoError(t, err)
	small, _ := reduced.(*metav1.PartialObjectMetadata)
	assert.Equal(t, map[string]string{keyCount: "4"}, small.Labels)
	assert.Empty(t, small.Annotations)
	assert.Len(t, small.ManagedFields, 2)
	own, others, err := owners(small, Manager(driver))
	require.NoError(t, err)
	assert.Equal(t, map[string]bool{keyCount: true}, own)
	assert.Equal(t, map[string]bool{keyFamily: true}, others)
	wantOwn, wantOthers, err := owners(node, Manager(driver))
	require.NoError(t, err)
	assert.Equal(t, []any{wantOwn, wantOthers}, []any{own, others})
}

// TestAfter_Changes_OneRequestLater: a burst of changes of a node is one reconciliation, after a delay. Other changes are none.
func TestAfter_Changes_OneRequestLater(t *testing.T) {
	t.Parallel()
	now := clienttesting.NewFakeClock(metav1.Now().Time)
	q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request](),
		workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Clock: now})
	defer q.ShutDown()
	slice := func(node, facts string) client.Object {
		return &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: map[string]string{annotationFacts: facts}}, Spec: resourceapi.ResourceSliceSpec{NodeName: &node},
		}
	}
	slices := after(nodeOf, sameFacts)
	slices.Update(t.Context(), event.UpdateEvent{ObjectOld: slice("n1", "a"), ObjectNew: slice("n1", "a")}, q)
	slices.Create(t.Context(), event.CreateEvent{Object: &resourceapi.ResourceSlice{}}, q)
	nodes := after(func(node client.Object) []string { return []string{node.GetName()} }, sameLabels)
	node := newNode()
	node.Name = "n1"
	newer := node.DeepCopy()
	newer.ResourceVersion = "8"
	nodes.Update(t.Context(), event.UpdateEvent{ObjectOld: node, ObjectNew: newer}, q)
	now.Step(2 * changeDelay)
	assert.Zero(t, q.Len(), "no label and no fact changed")

	slices.Create(t.Context(), event.CreateEvent{Object: slice("n1", "a")}, q)
	slices.Update(t.Context(), event.UpdateEvent{ObjectOld: slice("n1", "a"), ObjectNew: slice("n1", "b")}, q)
	slices.Delete(t.Context(), event.DeleteEvent{Object: slice("n1", "b")}, q)
	newer.Labels = map[string]string{keyCount: "1"}
	nodes.Update(t.Context(), event.UpdateEvent{ObjectOld: node, ObjectNew: newer}, q)
	assert.Zero(t, q.Len())
	for q.Len() == 0 {
		now.Step(changeDelay)
	}
	request, _ := q.Get()
	assert.Equal(t, "n1", request.Name)
	assert.Zero(t, q.Len())
}
