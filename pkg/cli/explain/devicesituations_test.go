package explain

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// deviceSituations are about devices that are in use, tainted or missing.
var deviceSituations = map[string]func(*world) (*Explanation, error){
	"inuse-mig-one-blocker": func(w *world) (*Explanation, error) {
		w.node("gpu-a07", "h100-80", 1, migModes())
		w.use("gpu-a07", "web", "rank-x2", request("mig-1g-10gb."+driver, 1))
		w.use("gpu-a07", "ml", "t-1", request("mig-3g-40gb."+driver, 1))
		w.use("gpu-a07", "ml", "t-2", request("mig-1g-10gb."+driver, 1))
		return w.pending("train-0", request("mig-3g-40gb."+driver, 1)), nil
	},
	"inuse-by-capacity-smaller-profile": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 1, migModes())
		w.use("gpu-a01", "web", "a", request("mig-3g-40gb."+driver, 1))
		return w.pending("train-0", sized(request("by-capacity."+driver, 1), driver+"/p7g80gb", "1")), nil
	},
	"inuse-whole-any-of-eight": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 8, whole)
		for i := range 8 {
			w.use("gpu-a01", "ml", fmt.Sprintf("big-%d", i), request(driver, 1))
		}
		return w.pending("train-0", request(driver, 1)), nil
	},
	"inuse-shares-block-mig": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 1, func(i int, g *gpu.GPU) gpu.Modes {
			m := mpsModes(4)(i, g)
			m.MIG = g.MIG.ProfileNames()
			return m
		})
		w.use("gpu-a01", "web", "chat-1", sized(request("mps."+driver, 1), "memory", "20Gi"))
		w.use("gpu-a01", "web", "chat-2", sized(request("mps."+driver, 1), "memory", "22Gi"))
		return w.pending("train-0", request("mig-3g-40gb."+driver, 1)), nil
	},
	"inuse-several-devices-no-gpu-named": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 4, whole)
		for _, pod := range []string{"a", "b", "c"} {
			w.use("gpu-a01", "web", pod, request(driver, 1))
		}
		return w.pending("train-0", request(driver, 3)), nil
	},
	"inuse-claim-of-several-pods": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		pods := []*corev1.Pod{podOf("web", "a", "shared"), podOf("web", "b", "shared"), podOf("web", "c", "shared")}
		w.hold("gpu-a01", claimOf("web", "shared", request(driver, 1)), pods...)
		return w.pending("train-0", request(driver, 1)), nil
	},
	"inuse-lower-priority-first": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 2, whole)
		for i, priority := range []int32{1000, 10} {
			p := podOf("web", fmt.Sprintf("p-%d", i), fmt.Sprintf("p-%d-gpu", i))
			p.Spec.Priority = &priority
			p.Labels = map[string]string{"pod-template-hash": "5d4f8c"}
			controller := true
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-5d4f8c", Controller: &controller}}
			w.hold("gpu-a01", claimOf("web", fmt.Sprintf("p-%d-gpu", i), request(driver, 1)), p)
		}
		return w.pending("train-0", request(driver, 1)), nil
	},
	"inuse-fewest-pods-of-equal-nodes": func(w *world) (*Explanation, error) {
		for i, pods := range []int{2, 1} {
			node, claim := fmt.Sprintf("gpu-a0%d", i+1), fmt.Sprintf("c-%d", i)
			w.node(node, "l40s", 1, whole)
			var all []*corev1.Pod
			for j := range pods {
				p := podOf("web", fmt.Sprintf("p-%d-%d", i, j), claim)
				priority := int32(1000 * i)
				p.Spec.Priority = &priority
				all = append(all, p)
			}
			w.hold(node, claimOf("web", claim, request(driver, 1)), all...)
		}
		return w.pending("train-0", request(driver, 1)), nil
	},
	"inuse-terminating-first": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 2, whole)
		for i := range 2 {
			p := podOf("web", fmt.Sprintf("p-%d", i), fmt.Sprintf("p-%d-gpu", i))
			if i == 1 {
				p.DeletionTimestamp = &metav1.Time{Time: metav1.Unix(now, 0).Time}
			}
			w.hold("gpu-a01", claimOf("web", fmt.Sprintf("p-%d-gpu", i), request(driver, 1)), p)
		}
		return w.pending("train-0", request(driver, 1)), nil
	},
	"inuse-claim-without-pods": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.hold("gpu-a01", claimOf("web", "left", request(driver, 1)))
		return w.pending("train-0", request(driver, 1)), nil
	},
	"inuse-mps-less-memory": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, mpsModes(8))
		w.use("gpu-a01", "web", "chat-1", sized(request("mps."+driver, 1), "memory", "20Gi"))
		w.use("gpu-a01", "web", "chat-2", sized(request("mps."+driver, 1), "memory", "5Gi"))
		return w.pending("train-0", sized(request("mps."+driver, 1), "memory", "22Gi")), nil
	},
	"inuse-timeslice-shares": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "t4", 1, timeSliceModes(2))
		w.use("gpu-a01", "web", "a", request("timeslice."+driver, 1))
		w.use("gpu-a01", "web", "b", request("timeslice."+driver, 1))
		return w.pending("train-0", request("timeslice."+driver, 1)), nil
	},
	"inuse-hidden-claims": func(w *world) (*Explanation, error) {
		w.store.SetScope(clusterview.Scope{Namespace: "ml", Nodes: true, TaintRules: true})
		w.node("gpu-a01", "h100-80", 1, migModes())
		w.store.PutClaim(claimOf("ml", "train-0-gpu", request("mig-3g-40gb."+driver, 1)))
		p := podOf("ml", "train-0", "train-0-gpu")
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/1 nodes are available: 1 cannot allocate all claims.",
		}}
		w.store.PutPod(p)
		return w.explain("train-0"), nil
	},
	"taint-device-plugin": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 1, whole, publish.ConflictTaints(publish.ConflictDevicePlugin)...)
		return w.pending("train-0", request(driver, 1)), nil
	},
	"taint-xid": func(w *world) (*Explanation, error) {
		n := Machine(w.t, "gpu-a01", "l40s", 1)
		w.node("gpu-a01", "l40s", 1, whole, publish.TaintRule{Name: "xid", Value: "79", GPUs: map[gpu.UUID]bool{n.GPUs[0].UUID: true}})
		return w.pending("train-0", request(driver, 1)), nil
	},
	"taint-maintenance-reason": func(w *world) (*Explanation, error) {
		n := Machine(w.t, "gpu-a01", "l40s", 1)
		w.node("gpu-a01", "l40s", 1, whole, publish.TaintRule{Name: "maintenance", GPUs: map[gpu.UUID]bool{n.GPUs[0].UUID: true}})
		w.object("gpu-a01", func(o *corev1.Node) {
			o.Annotations = map[string]string{"maintenance." + driver + "/gpu-" + n.GPUs[0].ID: "fan replacement, ask ops@example.com"}
		})
		return w.pending("train-0", request(driver, 1)), nil
	},
	"taint-foreign-toleration": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 2, whole)
		name := driver
		w.store.PutRule(&resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "reserved"}, Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &name},
			Taint:          resourceapi.DeviceTaint{Key: "example.com/reserved", Value: "team-a", Effect: resourceapi.DeviceTaintEffectNoSchedule},
		}})
		return w.pending("train-0", request(driver, 1)), nil
	},
	"taint-and-inuse": func(w *world) (*Explanation, error) {
		n := Machine(w.t, "gpu-a01", "l40s", 2)
		w.node("gpu-a01", "l40s", 2, whole, publish.TaintRule{Name: "gpu-lost", Value: "hung", GPUs: map[gpu.UUID]bool{n.GPUs[1].UUID: true}})
		w.use("gpu-a01", "web", "a", request(driver, 1))
		return w.pending("train-0", request(driver, 1)), nil
	},
	"taint-of-used-device": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.use("gpu-a01", "web", "a", request(driver, 1))
		w.node("gpu-a01", "l40s", 1, whole, publish.ConflictTaints(publish.ConflictDRADriver)...)
		return w.pending("train-0", request(driver, 1)), nil
	},
	"nodevices": func(w *world) (*Explanation, error) {
		w.object("cpu-1", func(*corev1.Node) {})
		w.object("cpu-2", func(*corev1.Node) {})
		return w.pending("train-0", request(driver, 1)), nil
	},
	"pool-incomplete": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		incomplete := w.solver().Cluster.FindNode("gpu-a01").Pools[0].Slices()[0].DeepCopy()
		incomplete.Spec.Pool.Generation, incomplete.Spec.Pool.ResourceSliceCount = 2, 2
		w.slice(incomplete)
		return w.pending("train-0", request(driver, 1)), nil
	},
	"gates-off-partitions": func(w *world) (*Explanation, error) {
		w.features.PartitionableDevices, w.features.ConsumableCapacity, w.features.DeviceTaints = false, false, false
		w.node("gpu-a01", "h100-80", 1, migModes())
		w.node("gpu-a02", "l40s", 1, whole, publish.ConflictTaints(publish.ConflictDevicePlugin)...)
		return w.pending("train-0", request(driver, 1)), nil
	},
	"mixed-causes": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 1, migModes())
		w.node("gpu-a02", "h100-80", 1, migModes())
		w.node("gpu-b01", "h100-80", 1, migModes(), publish.ConflictTaints(publish.ConflictDevicePlugin)...)
		w.node("gpu-c01", "l40s", 1, whole)
		for i, node := range []string{"gpu-a01", "gpu-a02"} {
			w.use(node, "ml", fmt.Sprintf("t-%d", i), request("mig-4g-40gb."+driver, 1))
			w.use(node, "web", fmt.Sprintf("r-%d", i), request("mig-1g-10gb."+driver, 1))
		}
		return w.pending("train-0", request("mig-3g-40gb."+driver, 1)), nil
	},
}
