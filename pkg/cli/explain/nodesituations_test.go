package explain

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// nodeSituations are about nodes that refuse the pod.
var nodeSituations = map[string]func(*world) (*Explanation, error){
	"node-taint": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.object("gpu-a01", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}}
		})
		return w.pending("train-0", request(driver, 1)), nil
	},
	"node-cordoned": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.node("gpu-a02", "l40s", 1, whole)
		w.object("gpu-a01", func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
		})
		w.use("gpu-a02", "web", "a", request(driver, 1))
		return w.pending("train-0", request(driver, 1)), nil
	},
	"node-selector": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.store.PutClaim(claimOf("ml", "gpu", request(driver, 1)))
		p := podOf("ml", "train-0", "gpu")
		p.Spec.NodeSelector = map[string]string{"zone": "b"}
		return w.put(p)
	},
	"node-resources": func(w *world) (*Explanation, error) {
		w.store.SetScope(clusterview.Scope{Nodes: true, TaintRules: true, AllPods: true})
		w.node("gpu-a01", "l40s", 2, whole)
		other := podOf("web", "cpu-eater", "a")
		other.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("60")}
		w.hold("gpu-a01", claimOf("web", "a", request(driver, 1)), other)
		w.store.PutClaim(claimOf("ml", "gpu", request(driver, 1)))
		p := podOf("ml", "train-0", "gpu")
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("8")}
		return w.put(p)
	},
	"node-of-allocated-claim": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.node("gpu-a02", "l40s", 1, whole)
		w.hold("gpu-a01", claimOf("ml", "gpu", request(driver, 1)))
		w.object("gpu-a01", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "example.com/team", Value: "b", Effect: corev1.TaintEffectNoSchedule}}
		})
		return w.put(podOf("ml", "train-0", "gpu"))
	},
	"node-unread": func(w *world) (*Explanation, error) {
		w.store.SetScope(clusterview.Scope{Namespace: "ml"})
		w.node("gpu-a01", "l40s", 1, whole)
		w.store.DeleteNode("gpu-a01")
		return w.pending("train-0", request(driver, 1)), nil
	},
}
