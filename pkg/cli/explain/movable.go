package explain

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyapi "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// Annotations of pods that forbid evictions, and their values.
var forbidden = []struct{ key, value string }{
	{"cluster-autoscaler.kubernetes.io/safe-to-evict", "false"},
	{"karpenter.sh/do-not-disrupt", "true"},
}

// Budgets are PodDisruptionBudgets.
type Budgets []*policyapi.PodDisruptionBudget

// of returns the budgets of a pod.
func (b Budgets) of(pod *clusterview.Pod) (found []*policyapi.PodDisruptionBudget) {
	for _, budget := range b {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && budget.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, budget)
		}
	}
	return found
}

// forbid returns why the pods cannot be evicted together; "" if no budget forbids it.
func (b Budgets) forbid(pods []*clusterview.Pod) string {
	evicted := map[*policyapi.PodDisruptionBudget]int32{}
	for _, pod := range pods {
		found := b.of(pod)
		if len(found) > 1 {
			return "several PodDisruptionBudgets select it, and the API server evicts no such pod"
		}
		for _, budget := range found {
			if evicted[budget]++; evicted[budget] > budget.Status.DisruptionsAllowed {
				return fmt.Sprintf("PodDisruptionBudget %s has disruptionsAllowed: %d", budget.Name, budget.Status.DisruptionsAllowed)
			}
		}
	}
	return ""
}

// immovable returns why a pod cannot move to other devices; "" if it can.
func immovable(pod *clusterview.Pod, b Budgets) string {
	controller := metav1.GetControllerOf(pod)
	switch {
	case pod.Spec.NodeName == "" && len(pod.Spec.Containers) == 0:
		return "it was not read"
	case controller == nil:
		return "no controller creates it again"
	case controller.Kind == "DaemonSet":
		return "DaemonSet " + controller.Name + " creates it again on the same node"
	case controller.Kind == "Node":
		return "it is a static pod"
	}
	for _, f := range forbidden {
		if pod.Annotations[f.key] == f.value {
			return fmt.Sprintf("its annotation %s: %q forbids it", f.key, f.value)
		}
	}
	for _, claim := range pod.Claims {
		if why := outlives(claim, pod); why != "" {
			return why
		}
	}
	return b.forbid([]*clusterview.Pod{pod})
}

// outlives returns why a claim outlives its pod; "" for a claim that was made for the pod.
func outlives(claim *clusterview.Claim, pod *clusterview.Pod) string {
	made := claim.Annotations[resourceapi.PodResourceClaimAnnotation] != "" ||
		claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation] == "true"
	if !made || !metav1.IsControlledBy(claim, pod) {
		return fmt.Sprintf("its claim %s was not made for it from a template", claim.Name)
	}
	if r := claim.Status.ReservedFor; len(r) != 1 || r[0].UID != pod.UID {
		return fmt.Sprintf("its claim %s is reserved for %d pods", claim.Name, len(r))
	}
	return ""
}

// releasesSoon reports whether all pods of a claim release it soon without an eviction.
func releasesSoon(claim *clusterview.Claim) bool {
	return len(claim.Pods) > 0 && !slices.ContainsFunc(claim.Pods, func(pod *clusterview.Pod) bool {
		return pod.DeletionTimestamp == nil && !ended(pod)
	})
}

// stays says why a claim is not released, as in "pod ml/a cannot move: it is a static pod"; "" if it can be.
func (d *defragmentation) stays(claim *clusterview.Claim) string {
	if len(claim.Pods) == 0 {
		return fmt.Sprintf("claim %s/%s is allocated, and reserved for no pod", claim.Namespace, claim.Name)
	}
	for _, pod := range claim.Pods {
		if why := d.immovable(pod); why != "" {
			return fmt.Sprintf("pod %s/%s cannot move: %s", claim.Namespace, pod.Name, why)
		}
	}
	return ""
}

// immovable caches the function of that name.
func (d *defragmentation) immovable(pod *clusterview.Pod) string {
	why, found := d.reasons[pod]
	if !found {
		why = immovable(pod, d.budgets)
		d.reasons[pod] = why
	}
	return why
}

// accepts reports whether a pod that is created again can run on a node, apart from its devices.
func (d *defragmentation) accepts(pod *clusterview.Pod, node *clusterview.Node) bool {
	checks := d.checks[pod]
	if checks == nil {
		if d.taken == nil {
			d.taken = newNodeChecks(d.Cluster, &clusterview.Pod{Pod: &corev1.Pod{}}, nil).taken
		}
		byDRA := map[corev1.ResourceName]bool{}
		for name := range newExtended(d.Cluster, pod).classes {
			byDRA[name] = true
		}
		checks = &nodeChecks{pod: pod, requests: resourcehelper.PodRequests(pod.Pod, resourcehelper.PodResourcesOptions{}), taken: d.taken, byDRA: byDRA}
		d.checks[pod] = checks
	}
	if node.Name == pod.Spec.NodeName { // the eviction releases the pod's resources
		own := *checks
		own.taken = nil
		checks = &own
	}
	return checks.refusal(node) == nil
}
