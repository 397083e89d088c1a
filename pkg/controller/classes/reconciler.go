package classes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	admissionapi "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// cacheLagRetry is the delay of a retry with a cache that lags behind.
const cacheLagRetry = 200 * time.Millisecond

// Options configure a Reconciler.
type Options struct {
	// DriverName is the DRA driver's name.
	DriverName string
	// ConfigMap contains the node configurations; an empty name means that none are used.
	ConfigMap types.NamespacedName
	// GPUResource determines whether whole GPUs get the name nvidia.com/gpu; empty means GPUResourceAuto.
	GPUResource GPUResource
	// Lease is the object of Events if there is no ConfigMap.
	Lease types.NamespacedName
	// OwnerRole is the ClusterRole that owns the managed objects; empty: they stay when the controller is uninstalled.
	OwnerRole string
}

// Reconciler applies plans. It reconciles one object, the ConfigMap, and is called by one goroutine at a time.
type Reconciler struct {
	Options
	// Client reads from a cache, Direct from the API server.
	Client client.Client
	Direct client.Reader
	Events events.EventRecorder
	// Metrics may be nil.
	Metrics *Metrics
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	owner    []metav1.OwnerReference
	reported map[Problem]bool
	released released
	nodes    nodeCheck
}

// Reconcile updates DeviceClasses and the policy according to the ConfigMap. If the ConfigMap does not exist, nothing changes: nodes keep
// their last configuration too.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	configs, about, err := r.configs(ctx)
	if apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Info("ConfigMap with node configurations not found, keeping DeviceClasses unchanged", "configMap", r.ConfigMap)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading ConfigMap %s: %w", r.ConfigMap, err)
	}
	in := Input{Driver: r.DriverName, OwnerRole: r.OwnerRole, Configs: configs, GPUResource: r.GPUResource}
	var classes resourceapi.DeviceClassList
	if err := r.Client.List(ctx, &classes); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing DeviceClasses: %w", err)
	}
	if err := r.resolveOwner(ctx); err != nil {
		return reconcile.Result{}, err
	}
	in.Classes, in.Former = classes.Items, r.formerClasses(classes.Items)
	profiles, err := r.profiles(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	in.Profiles = profiles
	capacity, recheck, err := r.capacity(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	in.Capacity = capacity
	plan, err := NewPlan(in)
	if err != nil {
		return reconcile.Result{}, err
	}
	renew := r.released.begin()
	err = r.apply(ctx, plan, classes.Items, renew)
	r.released.end(renew, err == nil)
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		// The cache lags behind, often behind this controller's own writes.
		klog.FromContext(ctx).V(4).Info("Retrying with an up-to-date cache", "reason", err.Error())
		return reconcile.Result{RequeueAfter: cacheLagRetry}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	r.reportProblems(about, classes.Items, plan.Problems)
	r.Metrics.planned(plan)
	return reconcile.Result{RequeueAfter: recheck}, nil
}

// configs returns the node configurations, and the object of Events.
func (r *Reconciler) configs(ctx context.Context) (map[string]string, runtime.Object, error) {
	if r.ConfigMap.Name == "" {
		return nil, &corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: r.Lease.Namespace, Name: r.Lease.Name}, nil
	}
	configs := &corev1.ConfigMap{}
	err := r.Client.Get(ctx, r.ConfigMap, configs)
	return configs.Data, configs, err
}

// profiles are the profiles of the published MIG devices, sorted.
func (r *Reconciler) profiles(ctx context.Context) ([]string, error) {
	var list resourceapi.ResourceSliceList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ResourceSlices: %w", err)
	}
	found := map[string]bool{}
	for i := range list.Items {
		for _, profile := range profilesIn(&list.Items[i], r.DriverName) {
			found[profile] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// resolveOwner reads the owner of the managed objects once.
func (r *Reconciler) resolveOwner(ctx context.Context) error {
	if r.OwnerRole == "" || r.owner != nil {
		return nil
	}
	owner, err := ownerOf(ctx, r.Direct, r.OwnerRole)
	if err != nil {
		return err
	}
	r.owner = []metav1.OwnerReference{owner}
	return nil
}

// ownerOf reads the ClusterRole that owns the objects of a release's controller.
func ownerOf(ctx context.Context, direct client.Reader, name string) (metav1.OwnerReference, error) {
	role := &rbacv1.ClusterRole{}
	if err := direct.Get(ctx, types.NamespacedName{Name: name}, role); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("reading ClusterRole %s, the owner of the managed objects: %w", name, err)
	}
	return metav1.OwnerReference{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: role.Name, UID: role.UID}, nil
}

// apply writes the differences. Deleting a DeviceClass does not affect allocated claims.
func (r *Reconciler) apply(ctx context.Context, plan *Plan, classes []resourceapi.DeviceClass, renew renewal) error {
	names := map[string]bool{}
	for _, desired := range plan.Classes {
		names[desired.Name] = true
		i := slices.IndexFunc(classes, func(c resourceapi.DeviceClass) bool { return c.Name == desired.Name })
		var current *resourceapi.DeviceClass
		if i >= 0 {
			current = &classes[i]
		}
		if nameDropped(current, desired) && !plan.Unconfigured[resourceOf(desired)] {
			plan.Problems = append(plan.Problems, Problem{
				Reason: ReasonExtendedResourcesUnsupported, Class: desired.Name, Note: "The API server drops the extended resource names of DeviceClasses, so " +
					"pods cannot request " + resourceOf(desired) + "; Kubernetes 1.36 or later stores them",
			})
		}
		if err := r.class(ctx, desired, current, renew.has(resourceOf(desired))); err != nil {
			return err
		}
	}
	for i := range classes {
		class := &classes[i]
		remove := r.remove
		switch {
		case names[class.Name]:
			continue
		case r.formerDriver(class) != "":
			remove = func(ctx context.Context, _ client.Object) error { return r.removeFormer(ctx, class, plan) }
		case !owned(class, r.DriverName):
			continue
		}
		if err := remove(ctx, class); err != nil {
			return err
		}
	}
	return r.policy(ctx, plan)
}

// class creates or updates one DeviceClass. Configuration that users added stays. With renew it is written even if nothing differs.
func (r *Reconciler) class(ctx context.Context, desired, current *resourceapi.DeviceClass, renew bool) error {
	if current == nil {
		return r.create(ctx, desired)
	}
	next := current.DeepCopy()
	r.setMetadata(next, desired)
	if _, named := desired.Annotations[annotationUses]; !named {
		delete(next.Annotations, annotationUses)
	}
	next.Spec.Selectors, next.Spec.ExtendedResourceName = desired.Spec.Selectors, desired.Spec.ExtendedResourceName
	if renew {
		next.Annotations[annotationRenewed] = current.ResourceVersion
	}
	return r.update(ctx, next, current)
}

// policy creates, updates or deletes the policy and its binding. The binding is created last and deleted first: it needs the policy.
func (r *Reconciler) policy(ctx context.Context, plan *Plan) error {
	name := types.NamespacedName{Name: PolicyName(r.OwnerRole, r.DriverName)}
	policy, binding := &admissionapi.ValidatingAdmissionPolicy{}, &admissionapi.ValidatingAdmissionPolicyBinding{}
	for _, object := range []client.Object{policy, binding} {
		if err := r.Client.Get(ctx, name, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading policy %s: %w", name.Name, err)
		}
	}
	if plan.Policy == nil {
		for _, object := range []client.Object{binding, policy} {
			if object.GetName() != "" && r.mine(object) {
				if err := r.remove(ctx, object); err != nil {
					return err
				}
			}
		}
		return nil
	}
	nextPolicy, nextBinding := policy.DeepCopy(), binding.DeepCopy()
	nextPolicy.Spec, nextBinding.Spec = merged(policy.Spec, plan.Policy.Spec), binding.Spec
	nextBinding.Spec.PolicyName, nextBinding.Spec.ValidationActions = plan.Binding.Spec.PolicyName, plan.Binding.Spec.ValidationActions
	for _, step := range []struct{ current, desired, next client.Object }{{policy, plan.Policy, nextPolicy}, {binding, plan.Binding, nextBinding}} {
		var err error
		switch {
		case step.current.GetName() == "":
			err = r.create(ctx, step.desired)
		case !r.mine(step.current):
			plan.Problems = append(plan.Problems, Problem{Reason: ReasonDeviceClassNameTaken, Note: kindOf(step.current) + " " + name.Name +
				" is not managed by the controller, so requests for several shares are refused on the node only; delete it"})
			return nil
		default:
			r.setMetadata(step.next, step.desired)
			err = r.update(ctx, step.next, step.current)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// merged is the current spec of a policy, with the server's defaults, and the desired values of the fields that the controller sets.
func merged(current, desired admissionapi.ValidatingAdmissionPolicySpec) admissionapi.ValidatingAdmissionPolicySpec {
	next := *current.DeepCopy()
	next.FailurePolicy, next.Variables, next.Validations = desired.FailurePolicy, desired.Variables, desired.Validations
	if next.MatchConstraints == nil || len(next.MatchConstraints.ResourceRules) != len(desired.MatchConstraints.ResourceRules) {
		next.MatchConstraints = desired.MatchConstraints
		return next
	}
	for i := range desired.MatchConstraints.ResourceRules {
		rule, desiredRule := &next.MatchConstraints.ResourceRules[i], &desired.MatchConstraints.ResourceRules[i]
		rule.Operations, rule.APIGroups, rule.APIVersions, rule.Resources = desiredRule.Operations, desiredRule.APIGroups, desiredRule.APIVersions, desiredRule.Resources
	}
	return next
}
