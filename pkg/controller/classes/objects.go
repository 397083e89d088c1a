package classes

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// setMetadata sets the controller's labels, annotations and owner, and keeps other labels and annotations.
func (r *Reconciler) setMetadata(object, desired client.Object) {
	merge := func(current, added map[string]string) map[string]string {
		all := maps.Clone(current)
		if all == nil && len(added) > 0 {
			all = map[string]string{}
		}
		maps.Copy(all, added)
		return all
	}
	object.SetLabels(merge(object.GetLabels(), desired.GetLabels()))
	object.SetAnnotations(merge(object.GetAnnotations(), desired.GetAnnotations()))
	if len(r.owner) > 0 {
		object.SetOwnerReferences(r.owner)
	}
}

// create fails if the object exists and is not in the cache yet.
func (r *Reconciler) create(ctx context.Context, object client.Object) error {
	object.SetOwnerReferences(r.owner)
	if err := r.Client.Create(ctx, object); err != nil {
		return fmt.Errorf("creating %s %s: %w", kindOf(object), object.GetName(), err)
	}
	klog.FromContext(ctx).Info("Created", "kind", kindOf(object), "name", object.GetName())
	return nil
}

// update writes an object that differs; it fails if another client has changed it since it was read.
func (r *Reconciler) update(ctx context.Context, next, current client.Object) error {
	if equality.Semantic.DeepEqual(next, current) {
		return nil
	}
	if err := r.Client.Update(ctx, next); err != nil {
		return fmt.Errorf("updating %s %s: %w", kindOf(next), next.GetName(), err)
	}
	klog.FromContext(ctx).Info("Updated", "kind", kindOf(next), "name", next.GetName())
	return nil
}

// remove deletes an object, unless it has changed since it was read.
func (r *Reconciler) remove(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := r.Client.Delete(ctx, object, client.Preconditions(metav1.Preconditions{UID: &uid, ResourceVersion: &version}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", kindOf(object), object.GetName(), err)
	}
	klog.FromContext(ctx).Info("Deleted", "kind", kindOf(object), "name", object.GetName())
	return nil
}

// kindOf is the kind of an object for messages, because typed objects do not have it set.
func kindOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }
