package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// Refused is the error for a pod or a claim that does not wait for devices. Its text is one sentence.
type Refused struct{ Reason string }

// Error returns the sentence.
func (r *Refused) Error() string { return r.Reason }

// podClaims are the claims of a pod.
type podClaims struct {
	// allocated are the claims that have devices, pending the ones that need them.
	allocated []*clusterview.Claim
	pending   []*resourceapi.ResourceClaim
	// made reports whether the claim for extended resources exists.
	made bool
}

// started explains a pod that has a node; "" if it has none. Ready reports whether nothing but its start is missing.
func started(pod *clusterview.Pod) (state string, ready bool, err error) {
	name := "Pod " + pod.Namespace + "/" + pod.Name
	switch {
	case ended(pod):
		return "", false, &Refused{fmt.Sprintf("%s has ended: its phase is %s", name, pod.Status.Phase)}
	case pod.Spec.NodeName == "":
		return "", false, nil
	case pod.Status.Phase == corev1.PodRunning:
		return "", false, &Refused{fmt.Sprintf("%s runs on node %s", name, pod.Spec.NodeName)}
	}
	var problems []string
	for _, claim := range pod.Claims {
		problems = append(problems, unprepared(claim)...)
	}
	if len(problems) == 0 {
		return "bound to node " + pod.Spec.NodeName + ", whose kubelet starts it", true, nil
	}
	return "bound to node " + pod.Spec.NodeName + ", which cannot prepare its devices: " + strings.Join(problems, "; "), false, nil
}

// unprepared lists the reasons for which devices of a claim are not ready.
func unprepared(claim *clusterview.Claim) (problems []string) {
	for _, d := range claim.Status.Devices {
		if c := meta.FindStatusCondition(d.Conditions, "Ready"); c != nil && c.Status == metav1.ConditionFalse {
			problems = append(problems, fmt.Sprintf("claim %s, device %s: %s", claim.Name, d.Device, c.Message))
		}
	}
	return problems
}

// before explains why the scheduler does not even ask for devices; "" if it does. Otherwise it returns the claims of the pod.
func (r *run) before(ctx context.Context, pod *clusterview.Pod) (string, podClaims) {
	var claims podClaims
	if pod.DeletionTimestamp != nil {
		return "it is being deleted", claims
	}
	if gates := pod.Spec.SchedulingGates; len(gates) > 0 {
		var names []string
		for _, gate := range gates {
			names = append(names, gate.Name)
		}
		return "the scheduler waits until its scheduling gates are removed: " + strings.Join(names, ", "), claims
	}
	names := map[string]string{}
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		claim, problem := r.claimOf(pod, entry)
		if problem != "" {
			return problem, claims
		}
		if claim == nil {
			continue
		}
		if claim.Name != "" && names[claim.Name] != "" {
			return twice(pod, claim, names[claim.Name], entry.Name), claims
		}
		names[claim.Name] = entry.Name
		claims.add(claim)
	}
	for _, claim := range pod.Claims {
		if claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation] == "true" {
			claims.made = true
			claims.add(claim)
		}
	}
	for _, claim := range claims.allocated {
		if problem := inUse(pod, claim); problem != "" {
			return problem, claims
		}
	}
	return r.unsupported(ctx, claims.pending), claims
}

func (c *podClaims) add(claim *clusterview.Claim) {
	if claim.Status.Allocation != nil {
		c.allocated = append(c.allocated, claim)
		return
	}
	c.pending = append(c.pending, defaulted(claim.ResourceClaim))
}

// claimOf finds the claim of an entry in a pod's spec, or makes one from its template.
func (r *run) claimOf(pod *clusterview.Pod, entry *corev1.PodResourceClaim) (claim *clusterview.Claim, problem string) {
	name, mustOwn, err := resourceclaim.Name(pod.Pod, entry)
	switch {
	case err == nil && name == nil:
		return nil, "" // the entry needs no claim
	case err != nil:
		return r.fromTemplate(pod, entry)
	}
	claim = r.Cluster.FindClaim(pod.Namespace, *name)
	switch {
	case claim == nil:
		return nil, "claim " + *name + " does not exist" + didYouMean(*name, r.claimNames(pod.Namespace))
	case claim.DeletionTimestamp != nil:
		return nil, "claim " + *name + " is being deleted"
	case mustOwn && resourceclaim.IsForPod(pod.Pod, claim.ResourceClaim, true) != nil:
		return nil, "claim " + *name + " was not made for this pod: delete the claim"
	}
	return claim, ""
}

// fromTemplate makes the claim that kube-controller-manager has not created yet.
func (r *run) fromTemplate(pod *clusterview.Pod, entry *corev1.PodResourceClaim) (*clusterview.Claim, string) {
	if entry.ResourceClaimTemplateName == nil {
		return nil, "the claim of entry " + entry.Name + " does not exist yet"
	}
	name := *entry.ResourceClaimTemplateName
	template, read := r.Cluster.Templates[types.NamespacedName{Namespace: pod.Namespace, Name: name}]
	switch {
	case read && template == nil:
		return nil, "ResourceClaimTemplate " + name + " does not exist"
	case r.options.Facts.ClaimCreation != "":
		return nil, "its claim for ResourceClaimTemplate " + name + " cannot be created: " + r.options.Facts.ClaimCreation
	case pod.UID != "":
		return nil, "kube-controller-manager has not created its claim for ResourceClaimTemplate " + name + " yet"
	case !read:
		return nil, "ResourceClaimTemplate " + name + " was not read"
	}
	return &clusterview.Claim{ResourceClaim: &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + "-" + entry.Name}, Spec: template.Spec.Spec,
	}}, ""
}

// twice explains a pod with one claim under two names: the API server refuses to reserve the claim twice.
func twice(pod *clusterview.Pod, claim *clusterview.Claim, first, second string) string {
	text := fmt.Sprintf("the pod can never start: its entries %s and %s name the same claim %s. Delete the pod and name the claim once",
		first, second, claim.Name)
	others := func(c resourceapi.ResourceClaimConsumerReference) bool { return c.UID != pod.UID }
	if claim.Status.Allocation != nil && !slices.ContainsFunc(claim.Status.ReservedFor, others) {
		text += "; delete claim " + claim.Name + " too: it holds its devices, although no pod uses them"
	}
	return text
}

// inUse explains an allocated claim that has no place for another pod.
func inUse(pod *clusterview.Pod, claim *clusterview.Claim) string {
	if len(claim.Status.ReservedFor) < resourceapi.ResourceClaimReservedForMaxSize ||
		resourceclaim.IsReservedForPod(pod.Pod, claim.ResourceClaim, true) {
		return ""
	}
	return fmt.Sprintf("claim %s is reserved for %d pods, the most that a claim can have: wait for one of them, or use another claim",
		claim.Name, len(claim.Status.ReservedFor))
}

// unsupported explains a claim with a field that the cluster's scheduler does not support.
func (r *run) unsupported(ctx context.Context, claims []*resourceapi.ResourceClaim) string {
	refuses := r.refusesCapacity(ctx, claims)
	for _, claim := range claims {
		for i := range claim.Spec.Devices.Requests {
			request := &claim.Spec.Devices.Requests[i]
			if gate := r.gate(request, refuses); gate != "" {
				return fmt.Sprintf("request %s of claim %s needs the feature gate %s, which the scheduler has not enabled",
					request.Name, claim.Name, gate)
			}
		}
	}
	return ""
}

// consumableCapacity is the feature gate for the capacities of requests.
const consumableCapacity = "DRAConsumableCapacity"

// refusesCapacity reports whether the allocator refuses the capacities that claims request. Without the feature gate, the allocator that the
// scheduler uses with newer features refuses them, and the other one ignores them.
func (r *run) refusesCapacity(ctx context.Context, claims []*resourceapi.ResourceClaim) bool {
	if r.Features.ConsumableCapacity {
		return false
	}
	_, err := r.Allocate(ctx, Question{Node: &clusterview.Node{}, Pools: []*clusterview.Pool{}, Claims: claims})
	return err != nil && strings.Contains(err.Error(), consumableCapacity)
}

// gate is the feature gate that a request needs and the scheduler does not have; "" for none.
func (r *run) gate(request *resourceapi.DeviceRequest, refusesCapacity bool) string {
	capacity := func(c *resourceapi.CapacityRequirements) bool { return c != nil && refusesCapacity }
	if len(request.FirstAvailable) > 0 && !r.Features.PrioritizedList {
		return "DRAPrioritizedList"
	}
	for i := range request.FirstAvailable {
		if capacity(request.FirstAvailable[i].Capacity) {
			return consumableCapacity
		}
	}
	e := request.Exactly
	switch {
	case e == nil:
		return ""
	case capacity(e.Capacity):
		return consumableCapacity
	case e.AdminAccess != nil && !r.Features.AdminAccess:
		return "DRAAdminAccess"
	case len(e.DerivedAttributes) > 0 && !r.Features.DerivedAttributes:
		return "DRADerivedAttributes"
	default:
		return ""
	}
}

func (r *run) claimNames(namespace string) (names []string) {
	for _, c := range r.Cluster.Claims {
		if c.Namespace == namespace {
			names = append(names, c.Name)
		}
	}
	return names
}
