package classes

import (
	"context"
	"fmt"
	"slices"

	admissionapi "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Scheme returns a scheme with the kinds that the controller reads and writes.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, rbacv1.AddToScheme, resourceapi.AddToScheme, admissionapi.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering the kinds of the API: %w", err)
		}
	}
	return scheme, nil
}

// Cache restricts the cache to the objects that the controller reads, so that its RBAC rules can be as narrow.
func Cache(o Options) cache.Options {
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	only := cache.Options{
		ReaderFailOnMissingInformer: true,
		ByObject: map[client.Object]cache.ByObject{
			&admissionapi.ValidatingAdmissionPolicy{}:        {Field: named(PolicyName(o.OwnerRole, o.DriverName))},
			&admissionapi.ValidatingAdmissionPolicyBinding{}: {Field: named(PolicyName(o.OwnerRole, o.DriverName))},
			&resourceapi.ResourceSlice{}: {
				Field:     fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorDriver, o.DriverName),
				Transform: shrink(o.DriverName),
			},
		},
	}
	if o.ConfigMap.Name != "" {
		only.ByObject[&corev1.ConfigMap{}] = cache.ByObject{
			Namespaces: map[string]cache.Config{o.ConfigMap.Namespace: {FieldSelector: named(o.ConfigMap.Name)}},
		}
	}
	return only
}

// Watch makes the manager call the reconciler when an object that it reads or writes changes.
func (r *Reconciler) Watch(m manager.Manager) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: r.ConfigMap}}
	})
	// The first reconciliation happens even if none of the watched objects exists.
	start := source.Func(func(_ context.Context, queue requests) error {
		queue.Add(reconcile.Request{NamespacedName: r.ConfigMap})
		return nil
	})
	building := builder.ControllerManagedBy(m).Named("device-classes").WatchesRawSource(start)
	if r.ConfigMap.Name != "" {
		building = building.Watches(&corev1.ConfigMap{}, one)
	}
	err := building.
		Watches(&resourceapi.DeviceClass{}, r.classes()).
		Watches(&admissionapi.ValidatingAdmissionPolicy{}, one).
		Watches(&admissionapi.ValidatingAdmissionPolicyBinding{}, one).
		Watches(&resourceapi.ResourceSlice{}, one, builder.WithPredicates(newProfiles(r.DriverName))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("watching the objects of the controller: %w", err)
	}
	return nil
}

// newProfiles selects ResourceSlices with changed profiles, except deletions, which change nothing.
func newProfiles(driver string) predicate.Predicate {
	of := func(object client.Object) []string {
		slice, ok := object.(*resourceapi.ResourceSlice)
		if !ok {
			return nil
		}
		return profilesIn(slice, driver)
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return len(of(e.Object)) > 0 },
		UpdateFunc:  func(e event.UpdateEvent) bool { return !slices.Equal(of(e.ObjectOld), of(e.ObjectNew)) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
