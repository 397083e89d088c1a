package explain

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"
)

// waiting adds a pod with one claim, and explains it.
func (w *world) waiting(claim *resourceapi.ResourceClaim) (*Explanation, error) {
	w.store.PutClaim(claim)
	w.store.PutPod(podOf("ml", "train-0", claim.Name))
	return w.ask("train-0", w.options())
}

// requestSituations are about requests that devices cannot satisfy.
var requestSituations = map[string]func(*world) (*Explanation, error){
	"class-missing": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 1, whole)
		return w.pending("train-0", request("mig-3g-40g."+driver, 1)), nil
	},
	"selector-profile": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		return w.pending("train-0", request(driver, 1, attr("profile")+` == "3g.40gb"`)), nil
	},
	"selector-second-part": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 1, migModes())
		expression := attr("architecture") + ` == "Hopper" && ` + attr("profile") + ` in ["5g.50gb", "6g.60gb"]`
		return w.pending("train-0", request("mig."+driver, 1, expression)), nil
	},
	"selector-memory": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		return w.pending("train-0", request(driver, 1, fmt.Sprintf(`device.capacity[%q].memory.compareTo(quantity("60Gi")) >= 0`, driver))), nil
	},
	"selector-one-of-equal-gpus": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 2, timeSliceModes(2))
		return w.pending("train-0", request(driver, 1, attr("index")+` == 1`)), nil
	},
	"constraint-numa-of-equal-nodes": func(w *world) (*Explanation, error) {
		for i, name := range []string{"gpu-a01", "gpu-a02"} {
			w.node(name, "h100-80", 2, timeSliceModes(2))
			for at, p := range w.solver().Cluster.FindNode(name).Pools {
				numa := int64(at * i)
				for _, s := range p.Slices() {
					for j := range s.Spec.Devices {
						s.Spec.Devices[j].Attributes["resource.kubernetes.io/numaNode"] = resourceapi.DeviceAttribute{IntValue: &numa}
					}
					w.slice(s)
				}
			}
		}
		c := claimOf("ml", "train-0-gpu", request(driver, 2))
		name := resourceapi.FullyQualifiedName("resource.kubernetes.io/numaNode")
		c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &name}}
		return w.waiting(c)
	},
	"selector-index-as-string": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 2, whole)
		return w.pending("train-0", request(driver, 1, attr("index")+` == "0"`)), nil
	},
	"expression-missing-attribute": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 1, migModes())
		w.node("gpu-a02", "l40s", 1, whole)
		return w.pending("train-0", request("by-capacity."+driver, 1, attr("replicas")+` > 3`)), nil
	},
	"expression-version-as-string": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		return w.pending("train-0", request(driver, 1, attr("driverVersion")+` >= "570.0.0"`)), nil
	},
	"capacity-misspelt-profile": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 1, migModes())
		return w.pending("train-0", sized(request("by-capacity."+driver, 1), driver+"/p1g5gb", "1")), nil
	},
	"capacity-domain-of-driver": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, mpsModes(4))
		return w.pending("train-0", sized(request("mps."+driver, 1), driver+"/memory", "10Gi")), nil
	},
	"capacity-too-much": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, mpsModes(4))
		return w.pending("train-0", sized(request("mps."+driver, 1), "memory", "100Gi")), nil
	},
	"capacity-feature-off": func(w *world) (*Explanation, error) {
		w.features.ConsumableCapacity = false
		w.node("gpu-a01", "l40s", 1, whole)
		return w.pending("train-0", sized(request(driver, 1), "memory", "10Gi")), nil
	},
	"capacity-ignored": func(w *world) (*Explanation, error) {
		w.features = structured.Features{AdminAccess: true, PrioritizedList: true}
		w.node("gpu-a01", "l40s", 1, whole)
		return w.pending("train-0", sized(request(driver, 1), "memory", "100Gi")), nil
	},
	"count-too-many": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 4, whole)
		w.node("gpu-a02", "l40s", 2, whole)
		return w.pending("train-0", request(driver, 8)), nil
	},
	"count-in-use": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 4, whole)
		w.use("gpu-a01", "web", "a", request(driver, 1))
		w.use("gpu-a01", "web", "b", request(driver, 1))
		return w.pending("train-0", request(driver, 3)), nil
	},
	"count-partitions-together": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 1, migModes("1g.10gb", "3g.40gb"))
		return w.pending("train-0", request("mig-3g-40gb."+driver, 2), request("mig-1g-10gb."+driver, 1)), nil
	},
	"constraint-same-gpu": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 2, migModes("4g.40gb"))
		c := claimOf("ml", "train-0-gpu", request("mig-4g-40gb."+driver, 2))
		name := resourceapi.FullyQualifiedName(driver + "/parentUUID")
		c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &name}}
		return w.waiting(c)
	},
	"constraint-all-devices": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 2, whole)
		w.node("gpu-a02", "l40s", 1, whole)
		c := claimOf("ml", "train-0-gpu", request(driver, 0))
		c.Spec.Devices.Requests[0].Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
		name := resourceapi.FullyQualifiedName(driver + "/parentUUID")
		c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &name}}
		return w.waiting(c)
	},
	"all-one-in-use": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 2, whole)
		w.use("gpu-a01", "web", "a", request(driver, 1))
		c := claimOf("ml", "train-0-gpu", request(driver, 0))
		c.Spec.Devices.Requests[0].Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
		return w.waiting(c)
	},
	"first-available": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 1, migModes())
		w.use("gpu-a01", "web", "a", request("mig-4g-40gb."+driver, 1))
		w.use("gpu-a01", "web", "b", request("mig-2g-20gb."+driver, 1))
		c := claimOf("ml", "train-0-gpu")
		c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{
			{Name: "large", DeviceClassName: "mig-3g-40gb." + driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
			{Name: "share", DeviceClassName: "mps." + driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
		}}}
		return w.waiting(c)
	},
	"requests-not-together": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "h100-80", 1, migModes())
		return w.pending("train-0", request("mig-4g-40gb."+driver, 1), request(driver, 1)), nil
	},
	"two-drivers": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.class("nic.example.com", `device.driver == "nic.example.com"`)
		node := "gpu-a01"
		w.slice(&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "nic"}, Spec: resourceapi.ResourceSliceSpec{
			Driver: "nic.example.com", NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "nic-0"}},
		}})
		w.use("gpu-a01", "web", "a", request("nic.example.com", 1))
		return w.pending("train-0", request(driver, 1), request("nic.example.com", 1)), nil
	},
	"claim-alone": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.use("gpu-a01", "web", "a", request(driver, 1))
		w.store.PutClaim(claimOf("ml", "alone", request(driver, 1)))
		s := w.solver()
		return Claim(w.t.Context(), s, s.Cluster.FindClaim("ml", "alone"), w.options())
	},
	"claim-allocated": func(w *world) (*Explanation, error) {
		w.node("gpu-a01", "l40s", 1, whole)
		w.use("gpu-a01", "web", "a", request(driver, 1))
		s := w.solver()
		return Claim(w.t.Context(), s, s.Cluster.FindClaim("web", "a-gpu"), w.options())
	},
}
