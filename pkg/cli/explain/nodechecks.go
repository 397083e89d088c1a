package explain

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// nodeChecks are the checks of nodes that the scheduler makes before it asks for devices.
type nodeChecks struct {
	pod *clusterview.Pod
	// requests are the resources that the pod requests of nodes.
	requests corev1.ResourceList
	// taken are the resources that other pods request, by node; nil if they were not read.
	taken map[string]corev1.ResourceList
	// byDRA are the extended resources that DeviceClasses provide, unless a node has them.
	byDRA map[corev1.ResourceName]bool
}

func newNodeChecks(c *clusterview.Cluster, pod *clusterview.Pod, byDRA map[corev1.ResourceName]bool) *nodeChecks {
	n := &nodeChecks{pod: pod, requests: resourcehelper.PodRequests(pod.Pod, resourcehelper.PodResourcesOptions{}), byDRA: byDRA}
	if !c.Scope.AllPods {
		return n
	}
	n.taken = map[string]corev1.ResourceList{}
	for _, other := range c.Pods {
		if other.Spec.NodeName == "" || other.UID == pod.UID && other.Name == pod.Name || ended(other) {
			continue
		}
		taken := n.taken[other.Spec.NodeName]
		if taken == nil {
			taken = corev1.ResourceList{}
			n.taken[other.Spec.NodeName] = taken
		}
		for name, amount := range resourcehelper.PodRequests(other.Pod, resourcehelper.PodResourcesOptions{}) {
			sum := taken[name]
			sum.Add(amount)
			taken[name] = sum
		}
		pods := taken[corev1.ResourcePods]
		pods.Add(one)
		taken[corev1.ResourcePods] = pods
	}
	return n
}

func ended(pod *clusterview.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// refusal is the first reason for which a node, apart from its devices, refuses the pod; nil if there is none, or if the Node was not read.
func (n *nodeChecks) refusal(node *clusterview.Node) *outcome {
	if node.Object == nil {
		return nil
	}
	spec := &node.Object.Spec
	unschedulable := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if spec.Unschedulable && !n.tolerates(&unschedulable) {
		return &outcome{cause: NodeUnschedulable, detail: "the node is cordoned"}
	}
	taint, found := schedulinghelper.FindMatchingUntoleratedTaint(logr.Discard(), spec.Taints, n.pod.Spec.Tolerations, prevents, true)
	if found {
		return &outcome{cause: NodeTaint, detail: taint.ToString()}
	}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(n.pod.Pod).Match(node.Object); err != nil || !matches {
		return &outcome{cause: NodeAffinity, detail: n.affinity(node)}
	}
	return n.short(node)
}

func (n *nodeChecks) tolerates(taint *corev1.Taint) bool {
	return schedulinghelper.TolerationsTolerateTaint(logr.Discard(), n.pod.Spec.Tolerations, taint, true)
}

func prevents(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}

// affinity says which labels of the node do not match.
func (n *nodeChecks) affinity(node *clusterview.Node) string {
	var missing []string
	for _, key := range slices.Sorted(maps.Keys(n.pod.Spec.NodeSelector)) {
		if value := n.pod.Spec.NodeSelector[key]; node.Object.Labels[key] != value {
			missing = append(missing, key+"="+value)
		}
	}
	if len(missing) > 0 {
		return "nodeSelector " + strings.Join(missing, ",")
	}
	return "the pod's node affinity does not match"
}

// short names the resources of which the node has too little left.
func (n *nodeChecks) short(node *clusterview.Node) *outcome {
	if n.taken == nil {
		return nil
	}
	var short []string
	wanted := maps.Clone(n.requests)
	wanted[corev1.ResourcePods] = one
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		has, amount := node.Object.Status.Allocatable[name], wanted[name]
		if amount.IsZero() || n.byDRA[name] && has.IsZero() {
			continue
		}
		has.Sub(n.taken[node.Name][name])
		if has.Cmp(amount) < 0 {
			short = append(short, string(name))
		}
	}
	if len(short) == 0 {
		return nil
	}
	return &outcome{cause: NodeResources, detail: "insufficient " + strings.Join(short, ", ")}
}
