package explain

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/maintenance"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
)

// untolerated lists the taints because of which a device is not allocated to a request.
func (s *Solver) untolerated(d *resourceapi.Device, w *wish) (taints []resourceapi.DeviceTaint) {
	if !s.Features.DeviceTaints {
		return nil
	}
	for _, taint := range d.Taints {
		if taint.Effect != resourceapi.DeviceTaintEffectNoSchedule && taint.Effect != resourceapi.DeviceTaintEffectNoExecute {
			continue
		}
		tolerates := func(t resourceapi.DeviceToleration) bool { return resourceclaim.ToleratesTaint(t, taint) }
		if !slices.ContainsFunc(w.request.Tolerations, tolerates) {
			taints = append(taints, taint)
		}
	}
	return taints
}

// taintText is a taint and, for one of Prism's driver, how to repair its cause.
func taintText(taint resourceapi.DeviceTaint, d device, node *clusterview.Node, driver string) string {
	name := taint.Key
	if taint.Value != "" {
		name += "=" + taint.Value
	}
	key, own := strings.CutPrefix(taint.Key, driver+"/")
	if !own || driver == "" {
		return name + ":" + string(taint.Effect)
	}
	return name + ": " + repair(key, taint.Value, d, node, driver)
}

// ownTaint reports whether Prism's driver sets taints with the key. Their causes are repaired, not tolerated.
func ownTaint(key, driver string) bool { return driver != "" && strings.HasPrefix(key, driver+"/") }

// repair says what to do about a taint of Prism's driver, by the name of its key below the driver's domain.
func repair(key, value string, d device, node *clusterview.Node, driver string) string {
	switch {
	case key == "conflict" && value == "device-plugin":
		return "remove the device plugin"
	case key == "conflict":
		return "remove the other DRA driver"
	case key == "not-released":
		return "the cleanup of an earlier claim is pending: see the Events of the Node"
	case key == "config-change":
		return "the node configuration no longer advertises the device"
	case strings.HasSuffix(key, "-unavailable"):
		return "restart the " + strings.ToUpper(strings.TrimSuffix(key, "-unavailable")) + " service of the node"
	case strings.HasSuffix(key, "-busy"):
		return "a program outside of claims uses it: end the program"
	}
	f := finding.Finding{Key: finding.Key(key), Value: value}
	if f.Key == finding.GPULost && value == finding.DeviceNode {
		return "a device node of the GPU is missing on the host: create it with nvidia-modprobe -u, or restart nvidia-persistenced"
	}
	switch f.Key {
	case finding.Maintenance:
		return maintained(d, node, driver)
	case finding.GPULost, finding.RecoveryAction, finding.XID, finding.Memory, finding.Fabric, finding.NodeCondition, finding.Unmonitored:
		return finding.Message(&f)
	default:
		return "ask an administrator of the node"
	}
}

// maintained says why a GPU is under maintenance.
func maintained(d device, node *clusterview.Node, driver string) string {
	text := "under maintenance: ask an administrator of the node"
	if node == nil || node.Object == nil {
		return text
	}
	commands, _ := maintenance.Parse(node.Object.Annotations, driver)
	for _, c := range commands {
		if c.Verb == maintenance.Maintain && c.Reason != "" && (c.GPU == maintenance.All || c.GPU == gpuName(d.Name)) {
			return "under maintenance: " + c.Reason
		}
	}
	return text
}

// gpuName is the name of the physical GPU of a device of Prism's driver: "gpu-5d3f61a2" for "gpu-5d3f61a2-mig-19-0". It is the name itself
// for other devices.
func gpuName(device string) string {
	for _, suffix := range []string{"-mig-", "-mps", "-timeslice", "-perfmon"} {
		if i := strings.Index(device, suffix); i > 0 {
			return device[:i]
		}
	}
	return device
}
