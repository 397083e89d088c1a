package claim

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// advertised is the state of a node that it advertises at one moment.
type advertised struct {
	source Source
	node   *gpu.Node
	layout gpu.Layout
	// standby: another process may advertise something else by now.
	standby bool
	// recent: the claim may have been allocated before the layout changed, and bound after it.
	recent bool
}

// result resolves one of our allocation results, and returns the family of its device.
func (a advertised) result(r *resourceapi.DeviceRequestAllocationResult) (*Result, DevicePlanner, error) {
	device, err := a.device(r)
	if err != nil {
		return nil, nil, err
	}
	family := a.source.family(device.Type())
	if family == nil {
		return nil, nil, a.changed(r, "devices of type %q are not supported by this version of the driver", device.Type())
	}
	resolved := &Result{
		Request: r.Request, Pool: r.Pool, Admin: r.AdminAccess != nil && *r.AdminAccess, Device: device, Tolerations: r.Tolerations,
	}
	if r.ShareID != nil {
		resolved.ShareID = string(*r.ShareID)
	}
	for name, quantity := range unqualified(r.ConsumedCapacity, a.source.Driver) {
		if resolved.Consumed == nil {
			resolved.Consumed = map[string]string{}
		}
		resolved.Consumed[string(name)] = quantity.String()
	}
	return resolved, family, family.Admit(resolved, a.source.Driver)
}

// device finds an allocated device among those that are advertised.
func (a advertised) device(r *resourceapi.DeviceRequestAllocationResult) (gpu.Device, error) {
	if node := a.source.NodeName; r.Pool != node && !strings.HasPrefix(r.Pool, node+"/") {
		return nil, refusal(r, againFix, "it is in pool %q, which is not of node %s", r.Pool, node)
	}
	if r.Pool == (gpu.Monitor{}).Pool(a.source.NodeName) {
		return a.additional(r)
	}
	for i := range a.node.GPUs {
		g := &a.node.GPUs[i]
		if !of(r.Device, g) {
			continue
		}
		modes := a.layout.Of(g)
		for _, d := range modes.Devices(g) {
			if string(d.Name()) != r.Device {
				continue
			}
			if pool := modes.Pool(a.source.NodeName, g); pool != r.Pool {
				return nil, a.changed(r, "it was allocated from pool %q, and is in pool %q since the node's configuration changed", r.Pool, pool)
			}
			return d, nil
		}
		return nil, a.absent(r, g, modes)
	}
	return nil, a.missing(r)
}

// of reports whether a device name is of that GPU.
func of(device string, g *gpu.GPU) bool {
	whole := string(gpu.Whole{GPU: g}.Name())
	return device == whole || strings.HasPrefix(device, whole+"-")
}

// absent refuses a device that its present GPU does not advertise, and names the advertised devices.
func (a advertised) absent(r *resourceapi.DeviceRequestAllocationResult, g *gpu.GPU, modes gpu.Modes) error {
	why := "the node's configuration or the devices on the GPU changed"
	for _, family := range a.source.families() {
		knows, ok := family.(Absences)
		if !ok {
			continue
		}
		cause, refused := knows.Absent(r, g)
		if refused != nil {
			return refused
		}
		if cause != "" {
			why = cause
		}
	}
	var has []string
	for _, d := range modes.Devices(g) {
		what := strings.TrimSpace(fmt.Sprintf("%s %s", d.Type(), d.ProfileName()))
		if !slices.Contains(has, what) {
			has = append(has, what)
		}
	}
	return a.changed(r, "GPU %s does not advertise it now: %s; it advertises: %s", g.UUID, why, strings.Join(has, ", "))
}

// againFix is the advice if another allocation helps.
const againFix = "delete the pod so that it is scheduled again"

// changed refuses a device that the layout lacks, or places elsewhere. The layout of a process on standby may be out of date. The device
// of a claim that was just allocated may come back: the configuration was edited while its pod was scheduled.
func (a advertised) changed(r *resourceapi.DeviceRequestAllocationResult, cause string, args ...any) error {
	if a.standby {
		return passing(r, "wait until the update of the plugin on this node is complete; if this stays, "+againFix, cause, args...)
	}
	if a.recent {
		return passing(r, "if this stays for 10 minutes after the allocation, "+againFix, cause, args...)
	}
	return refusal(r, againFix, cause, args...)
}

// missing says why the GPU of an allocated device is not there.
func (a advertised) missing(r *resourceapi.DeviceRequestAllocationResult) error {
	node := a.source.NodeName
	if a.node.Driver.Version == "" {
		return passing(r, "install or load the NVIDIA driver on the node", "no NVIDIA driver is loaded on node %s", node)
	}
	for i := range a.node.Faults {
		fault := &a.node.Faults[i]
		if names(r.Device, fault.UUID) {
			return passing(r, "reset the GPU or drain the node", "GPU %s of node %s does not answer: %v", fault.UUID, node, fault.Err)
		}
	}
	return passing(r, "if it does not come back, "+againFix, "node %s does not advertise this device now", node)
}

// names reports whether a device name is of that GPU. A GPU that does not answer lacks an ID: the number of UUID digits in its names is
// unknown, but it is at least the shortest length that a GPU alone would get.
func names(device string, uuid gpu.UUID) bool {
	if uuid == "" {
		return false
	}
	alone := []gpu.GPU{{UUID: uuid}}
	gpu.AssignIDs(alone)
	return strings.HasPrefix(device, string(gpu.Whole{GPU: &alone[0]}.Name()))
}
