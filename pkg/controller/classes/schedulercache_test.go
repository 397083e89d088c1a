package classes

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

// watchedCluster sends the events of classes to a scheduler's cache and to the controller, in the order of the writes.
type watchedCluster struct {
	*cluster
	scheduler *extendedresourcecache.ExtendedResourceCache
	queue     requests
	// writes counts the writes of classes; it is also the clock of their creation timestamps.
	writes int
	// keepsNames is false for an API server that drops resource names.
	keepsNames bool
}

func watch(t *testing.T, data map[string]string, objects ...client.Object) *watchedCluster {
	w := &watchedCluster{
		cluster: newCluster(t, configs(data)), scheduler: extendedresourcecache.NewExtendedResourceCache(klog.Background()),
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

// received counts the write of a class, and changes the class like the API server.
func (w *watchedCluster) received(o client.Object) (*resourceapi.DeviceClass, bool) {
	class, ok := o.(*resourceapi.DeviceClass)
	if ok {
		w.writes++
		if !w.keepsNames {
			class.Spec.ExtendedResourceName = nil
		}
	}
	return class, ok
}

func (w *watchedCluster) create(ctx context.Context, api client.WithWatch, o client.Object, options ...client.CreateOption) error {
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

func (w *watchedCluster) update(ctx context.Context, api client.WithWatch, o client.Object, options ...client.UpdateOption) error {
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

func (w *watchedCluster) delete(ctx context.Context, api client.WithWatch, o client.Object, options ...client.DeleteOption) error {
	class, ok := o.(*resourceapi.DeviceClass)
	err := api.Delete(ctx, o, options...)
	if ok && err == nil {
		w.writes++
		w.scheduler.OnDelete(class.DeepCopy())
		w.Reconciler.classes().Delete(ctx, event.DeleteEvent{Object: class}, w.queue)
	}
	return err
}

// converge reconciles until no class is written any more.
func (w *watchedCluster) converge() {
	w.t.Helper()
	const maxRounds = 5
	for range maxRounds {
		before := w.writes
		w.reconcile()
		if w.writes == before {
			return
		}
	}
	require.Fail(w.t, "classes are written in every reconciliation")
}

// scheduled is the class that the scheduler uses for a resource name, which must match the API server; empty without one.
func (w *watchedCluster) scheduled(resource string) string {
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

// The scheduler's own cache drops a name when one of two classes loses it. The name moves from a class of an earlier version to the class
// of the profile, to a separate class when shared MIG devices get a separate name, and back.
func TestReconcile_ResourceNameMoves_SchedulerKeepsIt(t *testing.T) {
	const resource = "nvidia.com/mig-1g.10gb"
	const mixed = nodeHeader + "gpus: [{modes: [mig], mig: {profiles: [1g.10gb]}}]"
	const separated = nodeHeader + "gpus: [{modes: [mig], mig: {profiles: [1g.10gb]}}, {select: {indices: [1]}, mig: {replicas: {1g.10gb: 2}, resourceNames: {1g.10gb: nvidia.com/shared}}}]"
	old := unmanagedClass(className(resource, driver), resource, "true")
	old.Labels = labels(driver)
	old.Annotations = map[string]string{annotationUses: `{"a":[{"type":"mig","profile":"1g.10gb"}]}`}
	w := watch(t, map[string]string{"a": mixed}, &old)
	require.Equal(t, old.Name, w.scheduler.GetDeviceClass(resource).Name)
	profile, _ := ProfileClass(driver, "1g.10gb")

	w.converge()
	assert.Equal(t, profile, w.scheduled(resource))
	assert.Len(t, w.classes(), 2, "the class of the earlier version is deleted")
	assert.Equal(t, []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "prism-controller", UID: "role"}},
		w.classes()[resource].OwnerReferences)
	for range 2 {
		w.configure(map[string]string{"a": separated})
		w.converge()
		assert.Equal(t, className(resource, driver), w.scheduled(resource))
		require.Contains(t, w.classes(), profile, "the profile's class stays, without the name")
		assert.NotContains(t, w.classes()[profile].Annotations, annotationUses)
		w.configure(map[string]string{"a": mixed})
		w.converge()
		assert.Equal(t, profile, w.scheduled(resource))
		assert.Len(t, w.classes(), 2)
	}
	w.configure(map[string]string{"a": "version: v1"})
	w.converge()
	assert.Empty(t, w.scheduled(resource))
	assert.Len(t, w.classes(), 1)
	assert.Empty(t, w.events.Events)
	assert.InDelta(t, 1, value(t, w.Metrics.classes), 0)
}

// On Kubernetes 1.35 the classes of profiles are created. Dropped resource names are reported only if an entry uses any.
func TestReconcile_ServerDropsNames_ProfileClassesCreated(t *testing.T) {
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

// A class of a profile without a resource name is not mistaken for one whose name was dropped.
func TestReconcile_ProfileClassGetsName_NotReportedAsDropped(t *testing.T) {
	const gpus = "\ngpus: [{modes: [mig], mig: {profiles: [1g.10gb]}}]"
	w := watch(t, map[string]string{"a": nodeHeader + "flags: {migStrategy: none}" + gpus})
	w.converge()
	w.configure(map[string]string{"a": nodeHeader + gpus})
	assert.InDelta(t, 0, value(t, w.Metrics.problems.WithLabelValues(ReasonExtendedResourcesUnsupported)), 0)
	assert.Empty(t, w.events.Events)
	w.converge()
	name, _ := ProfileClass(driver, "1g.10gb")
	assert.Equal(t, name, w.scheduled("nvidia.com/mig-1g.10gb"))
}

func TestReconcile_NewLeader_OnlyClassesWithNamesWritten(t *testing.T) {
	w := watch(t, map[string]string{"a": nodeHeader + "flags: {migStrategy: none}\ngpus: [{modes: [mig], mig: {profiles: [1g.10gb]}}]"})
	w.converge()
	before := w.writes
	w.Reconciler = &Reconciler{Options: w.Options, Client: w.Client, Direct: w.Direct, Events: w.events}
	w.reconcile()
	assert.Equal(t, 1, w.writes-before, "only the class of nvidia.com/gpu")
}
