package explain

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// templated is a pod with a claim from a template.
func templated() *corev1.Pod {
	p := podOf("ml", "train-0")
	name := "gpu-template"
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &name}}
	return p
}

// asks is a pod that requests an extended resource.
func asks(name corev1.ResourceName) *corev1.Pod {
	p := podOf("ml", "train-0")
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse("1")}
	return p
}

func (w *world) put(p *corev1.Pod) (*Explanation, error) {
	w.store.PutPod(p)
	return w.ask(p.Name, w.options())
}

// podSituations are about pods for which the scheduler does not ask for devices yet, and about other properties of pods.
var podSituations = map[string]func(*world) (*Explanation, error){
	"pod-fits": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.node("gpu-a02", "l40s", 1, whole)
		w.store.PutClaim(claimOf("ml", "train-0-gpu", request(driver, 1)))
		w.store.PutPod(podOf("ml", "train-0", "train-0-gpu"))
		o := w.options()
		o.Facts = Facts{Scheduler: "0/2 nodes are available: 2 cannot allocate all claims.", SchedulerAge: 2 * time.Minute}
		return w.ask("train-0", o)
	},
	"pod-claim-missing": func(w *world) (*Explanation, error) {
		w.store.PutClaim(claimOf("ml", "gpu-claim", request(driver, 1)))
		return w.put(podOf("ml", "train-0", "gpu-clam"))
	},
	"pod-claim-being-deleted": func(w *world) (*Explanation, error) {
		c := claimOf("ml", "gpu-claim", request(driver, 1))
		c.DeletionTimestamp = &metav1.Time{Time: metav1.Unix(now, 0).Time}
		w.store.PutClaim(c)
		return w.put(podOf("ml", "train-0", "gpu-claim"))
	},
	"pod-template-missing": func(w *world) (*Explanation, error) {
		w.store.PutTemplate(types.NamespacedName{Namespace: "ml", Name: "gpu-template"}, nil)
		return w.put(templated())
	},
	"pod-quota": func(w *world) (*Explanation, error) {
		w.store.PutTemplate(types.NamespacedName{Namespace: "ml", Name: "gpu-template"}, &resourceapi.ResourceClaimTemplate{})
		w.store.PutPod(templated())
		o := w.options()
		o.Facts.ClaimCreation = `exceeded quota: gpus, requested: gpu.prism.dev.deviceclass.resource.k8s.io/devices=1, used: 8, limited: 8`
		return w.ask("train-0", o)
	},
	"pod-of-a-file": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		template := &resourceapi.ResourceClaimTemplate{}
		asked := resourceapi.DeviceRequest{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: driver}}
		template.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{asked}
		w.store.PutTemplate(types.NamespacedName{Namespace: "ml", Name: "gpu-template"}, template)
		p := templated()
		p.UID, p.CreationTimestamp = "", metav1.Time{}
		return w.put(p)
	},
	"pod-scheduling-gates": func(w *world) (*Explanation, error) {
		p := templated()
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
		return w.put(p)
	},
	"pod-claim-twice": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.hold("gpu-a01", claimOf("ml", "gpu", request(driver, 1)))
		p := podOf("ml", "train-0", "gpu", "gpu")
		p.Spec.ResourceClaims[1].Name = "again"
		return w.put(p)
	},
	"pod-reserved-for-full": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		c := claimOf("ml", "shared", request(driver, 1))
		for i := range resourceapi.ResourceClaimReservedForMaxSize {
			name := fmt.Sprintf("p-%d", i)
			consumer := resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: types.UID(name)}
			c.Status.ReservedFor = append(c.Status.ReservedFor, consumer)
		}
		w.hold("gpu-a01", c)
		return w.put(podOf("ml", "train-0", "shared"))
	},
	"pod-prepare-failed": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		p := podOf("ml", "train-0", "gpu")
		c := claimOf("ml", "gpu", request(driver, 1))
		w.hold("gpu-a01", c, p)
		result := c.Status.Allocation.Devices.Results[0]
		condition := metav1.Condition{
			Type: "Ready", Status: metav1.ConditionFalse, Reason: "PrepareFailed", Message: "device node /dev/nvidia0 is missing (will be retried)",
		}
		c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
			Driver: result.Driver, Pool: result.Pool, Device: result.Device, Conditions: []metav1.Condition{condition},
		}}
		w.store.PutClaim(c)
		p.Status.Phase = corev1.PodPending
		return w.put(p)
	},
	"pod-bound": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		p := podOf("ml", "train-0", "gpu")
		w.hold("gpu-a01", claimOf("ml", "gpu", request(driver, 1)), p)
		p.Status.Phase = corev1.PodPending
		return w.put(p)
	},
	"pod-runs": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.use("gpu-a01", "ml", "train-0", request(driver, 1))
		return w.ask("train-0", w.options())
	},
	"pod-without-devices": func(w *world) (*Explanation, error) { return w.put(podOf("ml", "train-0")) },
	"pod-device-plugin-resource": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		return w.put(asks("nvidia.com/gpu"))
	},
	"pod-extended-resource": func(w *world) (*Explanation, error) {
		name := "nvidia.com/gpu"
		class := w.class("gpus", ofType("gpu"))
		class.Spec.ExtendedResourceName = &name
		w.store.PutClass(class)
		w.node("gpu-a01", "l40s", 1, whole)
		w.use("gpu-a01", "web", "a", request(driver, 1))
		w.node("gpu-b01", "l40s", 1, whole)
		w.object("gpu-b01", func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("8") })
		return w.put(asks("nvidia.com/gpu"))
	},
	"pod-extended-resource-in-use": func(w *world) (*Explanation, error) {
		name := "nvidia.com/mig-3g.40gb"
		class := w.class("mig-3g-40gb."+driver, ofType("mig")+` && `+attr("profile")+` == "3g.40gb"`)
		class.Spec.ExtendedResourceName = &name
		w.store.PutClass(class)
		w.node("gpu-a01", "h100-80", 1, migModes())
		w.use("gpu-a01", "web", "a", request("mig-1g-10gb."+driver, 1))
		w.use("gpu-a01", "web", "b", request("mig-3g-40gb."+driver, 1))
		return w.put(asks("nvidia.com/mig-3g.40gb"))
	},
	"pod-extended-resource-newer-class": func(w *world) (*Explanation, error) {
		name := "nvidia.com/gpu"
		for i, kind := range []string{"gpu", "timeslice", "mps"} {
			class := w.class("class-"+kind, ofType(kind))
			class.Spec.ExtendedResourceName = &name
			class.CreationTimestamp = metav1.Unix(now+int64(i%2), 0)
			w.store.PutClass(class)
		}
		w.node("gpu-a01", "t4", 1, timeSliceModes(2))
		return w.put(asks("nvidia.com/gpu"))
	},
	"pod-own-claim-in-the-way": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.hold("gpu-a01", claimOf("ml", "shared", request(driver, 1)))
		w.store.PutClaim(claimOf("ml", "second", request(driver, 1)))
		return w.put(podOf("ml", "train-0", "shared", "second"))
	},
	"pod-other-scheduler": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.store.PutClaim(claimOf("ml", "gpu", request(driver, 1)))
		p := podOf("ml", "train-0", "gpu")
		p.Spec.SchedulerName = "kai-scheduler"
		return w.put(p)
	},
	"pod-of-a-gang": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.store.PutClaim(claimOf("ml", "gpu", request(driver, 1)))
		p := podOf("ml", "train-0", "gpu")
		group := "train"
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
		return w.put(p)
	},
}
