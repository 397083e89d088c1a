package controller

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// watched is a world whose classes a scheduler and the controller itself hear of, in the order in which they are written.
type watched struct {
	*world
	scheduler *extendedresourcecache.ExtendedResourceCache
	queue     requests
	// writes counts those of classes; it is the clock of their creation too.
	writes int
	// keepsNames is off for an API server that drops resource names.
	keepsNames bool
}

func watch(t *testing.T, data map[string]string, objects ...client.Object) *watched {
	w := &watched{
		world: newWorld(t, configs(data)), scheduler: extendedresourcecache.NewExtendedResourceCache(klog.Background()),
		queue:      workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
		keepsNames: true,
	}
	t.Cleanup(w.queue.ShutDown)
	w.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{Create: w.create, Update: w.update, Delete: w.delete})
	for _, object := range objects {
		require.NoError(t, w.Client.Create(t.Context(), object))
	}
	return w
}

// received is what the API server makes of a class that is written.
func (w *watched) received(o client.Object) (*resourceapi.DeviceClass, bool) {
	class, ok := o.(*resourceapi.DeviceClass)
	if ok {
		w.writes++
		if !w.keepsNames {
			class.Spec.ExtendedResourceName = nil
		}
	}
	return class, ok
}

func (w *watched) create(ctx context.Context, api client.WithWatch, o client.Object, options ...client.CreateOption) error {
	class, ok := w.received(o)
	if ok {
		class.CreationTimestamp = metav1.Unix(int64(w.writes), 0)
	}
	err := api.Create(ctx, o, options...)
	if ok && err == nil {
		w.scheduler.OnAdd(class.DeepCopy(), false)
		w.Reconciler.classes().Create(ctx, event.CreateEvent{Object: class}, w.queue)
	}
	return err
}

func (w *watched) update(ctx context.Context, api client.WithWatch, o client.Object, options ...client.UpdateOption) error {
	class, ok := w.received(o)
	before := &resourceapi.DeviceClass{}
	if ok {
		require.NoError(w.t, api.Get(ctx, client.ObjectKeyFromObject(o), before))
	}
	err := api.Update(ctx, o, options...)
	if ok && err == nil {
		w.scheduler.OnUpdate(before.DeepCopy(), class.DeepCopy())
		w.Reconciler.classes().Update(ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: class}, w.queue)
	}
	return err
}

func (w *watched) delete(ctx context.Context, api client.WithWatch, o client.Object, options ...client.DeleteOption) error {
	class, ok := o.(*resourceapi.DeviceClass)
	err := api.Delete(ctx, o, options...)
	if ok && err == nil {
		w.writes++
		w.scheduler.OnDelete(class.DeepCopy())
		w.Reconciler.classes().Delete(ctx, event.DeleteEvent{Object: class}, w.queue)
	}
	return err
}

// settle reconciles until no class is written any more.
func (w *watched) settle() {
	w.t.Helper()
	const enough = 5
	for range enough {
		before := w.writes
		w.reconcile()
		if w.writes == before {
			return
		}
	}
	require.Fail(w.t, "classes are written again and again")
}

// scheduled is the name of the class that the scheduler takes for a resource name, which must be as the API server has it.
func (w *watched) scheduled(resource string) string {
	w.t.Helper()
	class := w.scheduler.GetDeviceClass("nvidia.com/gpu")
	require.NotNil(w.t, class, "whole GPUs keep their name")
	class = w.scheduler.GetDeviceClass(corev1.ResourceName(resource))
	if class == nil {
		return ""
	}
	stored := &resourceapi.DeviceClass{}
	require.NoError(w.t, w.Client.Get(w.t.Context(), client.ObjectKey{Name: class.Name}, stored))
	assert.Equal(w.t, resource, resourceOf(stored))
	return class.Name
}

// TestReconcile_ResourceNameMoves_SchedulerKeepsIt: with the scheduler's own cache, which forgets a name when one of two classes loses it.
// The name goes from the class that it had before there were classes of profiles to the profile's, to one of its own when shared MIG devices
// are kept apart, and back.
func TestReconcile_ResourceNameMoves_SchedulerKeepsIt(t *testing.T) {
	const resource = "nvidia.com/mig-1g.10gb"
	const mixed = nodeHeader + "gpus: [{modes: [mig], mig: {profiles: [1g.10gb]}}]"
	const apart = nodeHeader + "gpus: [{modes: [mig], mig: {profiles: [1g.10gb]}}, {select: {indices: [1]}, mig: {replicas: {1g.10gb: 2}, resourceNames: {1g.10gb: nvidia.com/shared}}}]"
	old := foreign(className(resource, driver), resource, "true")
	old.Labels = labels(driver)
	old.Annotations = map[string]string{annotationUses: `{"a":[{"type":"mig","profile":"1g.10gb"}]}`}
	w := watch(t, map[string]string{"a": mixed}, &old)
	require.Equal(t, old.Name, w.scheduler.GetDeviceClass(resource).Name)
	profile, _ := ProfileClass(driver, "1g.10gb")

	w.settle()
	assert.Equal(t, profile, w.scheduled(resource))
	assert.Len(t, w.classes(), 2, "the class from before is gone")
	assert.Equal(t, []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "prism-controller", UID: "role"}},
		w.classes()[resource].OwnerReferences)
	for range 2 {
		w.configure(map[string]string{"a": apart})
		w.settle()
		assert.Equal(t, className(resource, driver), w.scheduled(resource))
		require.Contains(t, w.classes(), profile, "the profile's class stays, without the name")
		assert.NotContains(t, w.classes()[profile].Annotations, annotationUses)
		w.configure(map[string]string{"a": mixed})
		w.settle()
		assert.Equal(t, profile, w.scheduled(resource))
		assert.Len(t, w.classes(), 2)
	}
	w.configure(map[string]string{"a": "version: v1"})
	w.settle()
	assert.Empty(t, w.scheduled(resource))
	assert.Len(t, w.classes(), 1)
	assert.Empty(t, w.events.Events)
	assert.InDelta(t, 1, value(t, w.Metrics.classes), 0)
}

// TestReconcile_NamesDropped_ProfileClassesServe: on Kubernetes 1.35 the classes of profiles exist; that the resource names are dropped is
// said where an entry gives one, and not of a class that is to have none.
func TestReconcile_NamesDropped_ProfileClassesServe(t *testing.T) {
	for strategy, problems := range map[string]int{"mixed": 1, "none": 0} {
		w := watch(t, map[string]string{"a": nodeHeader + "flags: {migStrategy: " + strategy + "}\ngpus: [{modes: [mig], mig: {profiles: [1g.10gb]}}]"})
		w.keepsNames = false
		w.reconcile()
		w.reconcile()
		name, selector := ProfileClass(driver, "1g.10gb")
		require.Contains(t, w.classes(), name)
		assert.Equal(t, selector, w.classes()[name].Spec.Selectors[0].CEL.Expression)
		assert.InDelta(t, problems, value(t, w.Metrics.problems.WithLabelValues(ReasonExtendedResourcesUnsupported)), 0, strategy)
	}
}

// TestReconcile_ProfileClassGainsName: a class of a profile that has no resource name yet is not taken for one whose name was dropped.
func TestReconcile_ProfileClassGainsName(t *testing.T) {
	const gpus = "\ngpus: [{modes: [mig], mig: {profiles: [1g.10gb]}}]"
	w := watch(t, map[string]string{"a": nodeHeader + "flags: {migStrategy: none}" + gpus})
	w.settle()
	w.configure(map[string]string{"a": nodeHeader + gpus})
	assert.InDelta(t, 0, value(t, w.Metrics.problems.WithLabelValues(ReasonExtendedResourcesUnsupported)), 0)
	assert.Empty(t, w.events.Events)
	w.settle()
	name, _ := ProfileClass(driver, "1g.10gb")
	assert.Equal(t, name, w.scheduled("nvidia.com/mig-1g.10gb"))
}

// TestReconcile_NewLeader_WritesNamelessClassesNot: only resource names are renewed.
func TestReconcile_NewLeader_WritesNamelessClassesNot(t *testing.T) {
	w := watch(t, map[string]string{"a": nodeHeader + "flags: {migStrategy: none}\ngpus: [{modes: [mig], mig: {profiles: [1g.10gb]}}]"})
	w.settle()
	before := w.writes
	w.Reconciler = &Reconciler{Options: w.Options, Client: w.Client, Direct: w.Direct, Events: w.events}
	w.reconcile()
	assert.Equal(t, 1, w.writes-before, "nvidia.com/gpu alone")
}
