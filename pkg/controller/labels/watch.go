package labels

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// indexNode is the index of cached ResourceSlices by node.
const indexNode = "spec.nodeName"

// nodeOf are the nodes of a ResourceSlice: one, or none.
func nodeOf(object client.Object) []string {
	if slice, ok := object.(*resourceapi.ResourceSlice); ok && slice.Spec.NodeName != nil {
		return []string{*slice.Spec.NodeName}
	}
	return nil
}

// Cache extends the options of the cache: ResourceSlices, which are cached already, keep the facts that labels follow from, and Nodes are
// cached as metadata. The options must have an entry for ResourceSlices.
func Cache(driver string, options cache.Options) {
	for object, by := range options.ByObject {
		if _, ok := object.(*resourceapi.ResourceSlice); ok {
			by.Transform = Transform(driver, by.Transform)
			options.ByObject[object] = by
		}
	}
	options.ByObject[&corev1.Node{}] = NodeCache()
}

// Watch makes the manager call the reconciler, some time after a ResourceSlice of the driver or a label of a Node has changed.
func (r *Reconciler) Watch(ctx context.Context, m manager.Manager) error {
	if err := m.GetFieldIndexer().IndexField(ctx, &resourceapi.ResourceSlice{}, indexNode, nodeOf); err != nil {
		return fmt.Errorf("indexing ResourceSlices by node: %w", err)
	}
	err := builder.ControllerManagedBy(m).Named("node-labels").
		// The limit of writes applies to all nodes together.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Watches(&resourceapi.ResourceSlice{}, after(nodeOf, sameFacts)).
		WatchesMetadata(&corev1.Node{}, after(func(node client.Object) []string { return []string{node.GetName()} }, sameLabels)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("watching ResourceSlices and Nodes for labels: %w", err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// after requests a reconciliation of the nodes of an object some time after it changed. More changes until then cause no further one.
func after(nodes func(client.Object) []string, same func(before, now client.Object) bool) handler.EventHandler {
	enqueue := func(q queue, objects ...client.Object) {
		for _, object := range objects {
			for _, node := range nodes(object) {
				request := reconcile.Request{}
				request.Name = node
				q.AddAfter(request, changeDelay)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if !same(e.ObjectOld, e.ObjectNew) {
				enqueue(q, e.ObjectOld, e.ObjectNew)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(q, e.Object) },
	}
}

// sameFacts reports whether two versions of a cached ResourceSlice have the same facts.
func sameFacts(before, now client.Object) bool {
	return before.GetAnnotations()[annotationFacts] == now.GetAnnotations()[annotationFacts] && reflect.DeepEqual(nodeOf(before), nodeOf(now))
}

// sameLabels reports whether two versions of a cached Node have the same labels, of the same managers.
func sameLabels(before, now client.Object) bool {
	return reflect.DeepEqual(before.GetLabels(), now.GetLabels()) && reflect.DeepEqual(before.GetManagedFields(), now.GetManagedFields()) &&
		before.GetUID() == now.GetUID()
}
