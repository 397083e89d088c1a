package controller

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

// mark gives an object our marks, and leaves those of others on it.
func (r *Reconciler) mark(object, wanted client.Object) {
	joined := func(now, ours map[string]string) map[string]string {
		all := maps.Clone(now)
		if all == nil && len(ours) > 0 {
			all = map[string]string{}
		}
		maps.Copy(all, ours)
		return all
	}
	object.SetLabels(joined(object.GetLabels(), wanted.GetLabels()))
	object.SetAnnotations(joined(object.GetAnnotations(), wanted.GetAnnotations()))
	if len(r.owner) > 0 {
		object.SetOwnerReferences(r.owner)
	}
}

// create fails where there is such an object, which the cache did not show yet.
func (r *Reconciler) create(ctx context.Context, object client.Object) error {
	object.SetOwnerReferences(r.owner)
	if err := r.Client.Create(ctx, object); err != nil {
		return fmt.Errorf("creating %s %s: %w", kindOf(object), object.GetName(), err)
	}
	klog.FromContext(ctx).Info("Created", "kind", kindOf(object), "name", object.GetName())
	return nil
}

// update writes what has changed; it fails where somebody else has written in between.
func (r *Reconciler) update(ctx context.Context, next, now client.Object) error {
	if equality.Semantic.DeepEqual(next, now) {
		return nil
	}
	if err := r.Client.Update(ctx, next); err != nil {
		return fmt.Errorf("updating %s %s: %w", kindOf(next), next.GetName(), err)
	}
	klog.FromContext(ctx).Info("Updated", "kind", kindOf(next), "name", next.GetName())
	return nil
}

// remove deletes the very object that was looked at.
func (r *Reconciler) remove(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := r.Client.Delete(ctx, object, client.Preconditions(metav1.Preconditions{UID: &uid, ResourceVersion: &version}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", kindOf(object), object.GetName(), err)
	}
	klog.FromContext(ctx).Info("Deleted", "kind", kindOf(object), "name", object.GetName())
	return nil
}

// kindOf is for people: typed objects do not carry their kind.
func kindOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }
