package controller

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

// lookAgain is what the cache gets to catch up.
const lookAgain = 200 * time.Millisecond

// Options say what a controller works on.
type Options struct {
	// DriverName is the DRA driver's name.
	DriverName string
	// ConfigMap holds the node configurations; without a name there are none.
	ConfigMap types.NamespacedName
	// GPUResource says whether whole GPUs get the name nvidia.com/gpu; empty means GPUResourceAuto.
	GPUResource GPUResource
	// Lease is what problems are told of where there is no ConfigMap.
	Lease types.NamespacedName
	// OwnerRole is a ClusterRole with which the controller's objects go; empty: they stay when the controller is removed.
	OwnerRole string
}

// Reconciler carries plans out. It has one thing to reconcile, the ConfigMap, and is called by one goroutine at a time.
type Reconciler struct {
	Options
	// Client reads from a cache, Direct from the API server.
	Client client.Client
	Direct client.Reader
	Events events.EventRecorder
	// Metrics may be nil.
	Metrics *Metrics
	// Now is replaced in tests; nil means time.Now.
	Now func() time.Time

	owner    []metav1.OwnerReference
	told     map[Problem]bool
	released released
	nodes    nodeCheck
}

// Reconcile makes the classes and the policy what the ConfigMap says. Without the ConfigMap nothing changes: nodes keep their last
// configuration too.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	configs, about, err := r.configs(ctx)
	if apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Info("There is no ConfigMap with node configurations; resource names stay as they are", "configMap", r.ConfigMap)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading ConfigMap %s: %w", r.ConfigMap, err)
	}
	in := Input{Driver: r.DriverName, Configs: configs, GPUResource: r.GPUResource}
	var classes resourceapi.DeviceClassList
	if err := r.Client.List(ctx, &classes); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing DeviceClasses: %w", err)
	}
	in.Classes = classes.Items
	profiles, err := r.profiles(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	in.Profiles = profiles
	capacity, again, err := r.capacity(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	in.Capacity = capacity
	plan, err := NewPlan(in)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.own(ctx); err != nil {
		return reconcile.Result{}, err
	}
	renew := r.released.begin()
	err = r.carryOut(ctx, plan, classes.Items, renew)
	r.released.end(renew, err == nil)
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		// The cache is behind, often behind what was written just now.
		klog.FromContext(ctx).V(4).Info("Looking again", "reason", err.Error())
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	r.tell(about, plan.Problems)
	r.Metrics.planned(plan)
	return reconcile.Result{RequeueAfter: again}, nil
}

// configs are the node configurations, and what problems are told of.
func (r *Reconciler) configs(ctx context.Context) (map[string]string, runtime.Object, error) {
	if r.ConfigMap.Name == "" {
		return nil, &corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: r.Lease.Namespace, Name: r.Lease.Name}, nil
	}
	configs := &corev1.ConfigMap{}
	err := r.Client.Get(ctx, r.ConfigMap, configs)
	return configs.Data, configs, err
}

// profiles are those of the slices that nodes publish, sorted.
func (r *Reconciler) profiles(ctx context.Context) ([]string, error) {
	var list resourceapi.ResourceSliceList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ResourceSlices: %w", err)
	}
	found := map[string]bool{}
	for i := range list.Items {
		for _, profile := range published(&list.Items[i], r.DriverName) {
			found[profile] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// own finds out once what the objects go with.
func (r *Reconciler) own(ctx context.Context) error {
	if r.OwnerRole == "" || r.owner != nil {
		return nil
	}
	role := &rbacv1.ClusterRole{}
	if err := r.Direct.Get(ctx, types.NamespacedName{Name: r.OwnerRole}, role); err != nil {
		return fmt.Errorf("reading ClusterRole %s, the owner of what the controller makes: %w", r.OwnerRole, err)
	}
	r.owner = []metav1.OwnerReference{{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: role.Name, UID: role.UID}}
	return nil
}

// carryOut writes what differs. Classes that go leave claims that were allocated by them alone.
func (r *Reconciler) carryOut(ctx context.Context, plan *Plan, classes []resourceapi.DeviceClass, renew renewal) error {
	names := map[string]bool{}
	for _, wanted := range plan.Classes {
		names[wanted.Name] = true
		i := slices.IndexFunc(classes, func(c resourceapi.DeviceClass) bool { return c.Name == wanted.Name })
		var now *resourceapi.DeviceClass
		if i >= 0 {
			now = &classes[i]
		}
		if dropped(now, wanted) && !plan.Unasked[resourceOf(wanted)] {
			plan.Problems = append(plan.Problems, Problem{ReasonExtendedResourcesUnsupported, "the API server drops the resource names of DeviceClasses, so that no pod " +
				"can request " + resourceOf(wanted) + "; Kubernetes serves them from 1.36 on"})
		}
		if err := r.class(ctx, wanted, now, renew.has(resourceOf(wanted))); err != nil {
			return err
		}
	}
	for i := range classes {
		if class := &classes[i]; owned(class, r.DriverName) && !names[class.Name] {
			if err := r.remove(ctx, class); err != nil {
				return err
			}
		}
	}
	return r.policy(ctx, plan)
}

// class makes one class what it should be. Configuration that somebody gave the class stays. To renew it is to write it in any case.
func (r *Reconciler) class(ctx context.Context, wanted, now *resourceapi.DeviceClass, renew bool) error {
	if now == nil {
		return r.create(ctx, wanted)
	}
	next := now.DeepCopy()
	r.mark(next, wanted)
	if _, named := wanted.Annotations[annotationUses]; !named {
		delete(next.Annotations, annotationUses)
	}
	next.Spec.Selectors, next.Spec.ExtendedResourceName = wanted.Spec.Selectors, wanted.Spec.ExtendedResourceName
	if renew {
		next.Annotations[annotationRenewed] = now.ResourceVersion
	}
	return r.update(ctx, next, now)
}

// policy makes the policy and its binding what they should be. The binding comes last and goes first: alone it is an error.
func (r *Reconciler) policy(ctx context.Context, plan *Plan) error {
	name := types.NamespacedName{Name: PolicyName(r.DriverName)}
	policy, binding := &admissionapi.ValidatingAdmissionPolicy{}, &admissionapi.ValidatingAdmissionPolicyBinding{}
	for _, object := range []client.Object{policy, binding} {
		if err := r.Client.Get(ctx, name, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading policy %s: %w", name.Name, err)
		}
	}
	if plan.Policy == nil {
		for _, object := range []client.Object{binding, policy} {
			if object.GetName() != "" && owned(object, r.DriverName) {
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
	for _, step := range []struct{ now, wanted, next client.Object }{{policy, plan.Policy, nextPolicy}, {binding, plan.Binding, nextBinding}} {
		var err error
		switch {
		case step.now.GetName() == "":
			err = r.create(ctx, step.wanted)
		case !owned(step.now, r.DriverName):
			plan.Problems = append(plan.Problems, Problem{ReasonDeviceClassNameTaken, "there is a " + kindOf(step.now) + " " + name.Name +
				" that is not the controller's, so that requests for several shares are refused on the node only; delete it"})
			return nil
		default:
			r.mark(step.next, step.wanted)
			err = r.update(ctx, step.next, step.now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// merged is a policy's specification with all that we say of it, and the server's defaults for the rest.
func merged(now, wanted admissionapi.ValidatingAdmissionPolicySpec) admissionapi.ValidatingAdmissionPolicySpec {
	next := *now.DeepCopy()
	next.FailurePolicy, next.Variables, next.Validations = wanted.FailurePolicy, wanted.Variables, wanted.Validations
	if next.MatchConstraints == nil || len(next.MatchConstraints.ResourceRules) != len(wanted.MatchConstraints.ResourceRules) {
		next.MatchConstraints = wanted.MatchConstraints
		return next
	}
	for i := range wanted.MatchConstraints.ResourceRules {
		rule, ours := &next.MatchConstraints.ResourceRules[i], &wanted.MatchConstraints.ResourceRules[i]
		rule.Operations, rule.APIGroups, rule.APIVersions, rule.Resources = ours.Operations, ours.APIGroups, ours.APIVersions, ours.Resources
	}
	return next
}
