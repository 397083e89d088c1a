package publish

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// MaxDevicesPerSlice is the API's limit for slices whose devices carry taints or counters. It is kept for all slices, so that
// tainting one device never moves another one to a different slice.
const MaxDevicesPerSlice = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// Options say for whom the slices are.
type Options struct {
	// DriverName is the domain of the keys of taints and of the capacities that select MIG devices. As gpu.nvidia.com, MIG devices have all
	// attributes that NVIDIA's driver gives them.
	DriverName string
	// NodeName is the node's name and the name of the pool of its whole GPUs.
	NodeName string
	// Layout says what the GPUs are offered as; nil: all of them whole.
	Layout gpu.Layout
	// Monitor: the node has a monitor device, in a pool of its own.
	Monitor bool
	// Owed are effects of earlier claims that could not be undone yet. Devices that they block get no new claims.
	Owed []gpu.PendingCleanup
	// Leaving are devices that are not to be offered any more and get no new claims until they are gone.
	Leaving map[gpu.PoolDevice]bool
	// Conflict says what else hands out the node's GPUs; then no device gets new claims. Empty: nothing does.
	Conflict Conflict
}

// Conflict is the value of ConflictTaint: what else hands out the GPUs.
type Conflict string

// The conflicts.
const (
	ConflictDevicePlugin Conflict = "device-plugin"
	ConflictDRADriver    Conflict = "dra-driver"
)

// The names, below the driver's domain, of the keys of taints. The effect of all is NoSchedule.
const (
	// DebtTaint is on a device that a debt blocks.
	DebtTaint = "not-released"
	// LeavingTaint is on a device that the node's configuration offers no more, until it is free.
	LeavingTaint = "config-change"
	// ConflictTaint is on every device while something else hands out the same GPUs.
	ConflictTaint = "conflict"
)

// Resources describes everything the node offers. The order of devices is the order in which the scheduler hands them out.
//
// The pool that carries the node's name has the GPUs that are offered whole, in their order. A node without such GPUs, and a nil node,
// have one empty slice there: it says that the driver runs. Every partitioned GPU has a pool of its own. Whether there is a pool with a
// monitor device is Options.Monitor alone.
//
// Names in attributes are not qualified, which makes them the driver's own: device.attributes["<driver name>"].<name> in CEL. Those of the
// capacities that select MIG devices are.
func Resources(opts Options, node *gpu.Node) resourceslice.DriverResources {
	if node == nil {
		node = &gpu.Node{}
	}
	pools := map[string]resourceslice.Pool{}
	var devices []resourceapi.Device
	for _, d := range node.Devices() {
		if !opts.Layout.Of(d.Parent()).Partitioned() {
			devices = append(devices, opts.device(d, node.Driver))
		}
	}
	pools[opts.NodeName] = resourceslice.Pool{Slices: chunk(devices)}
	for i := range node.GPUs {
		g := &node.GPUs[i]
		if offer := opts.Layout.Of(g); offer.Partitioned() {
			pools[offer.Pool(opts.NodeName, g)] = opts.partitioned(g, node.Driver)
		}
	}
	if opts.Monitor {
		pools[gpu.Monitor{}.Pool(opts.NodeName)] = monitor(node)
	}
	return resourceslice.DriverResources{Pools: pools}
}

// chunk spreads the devices, in order, over as few slices as the API allows, and over one empty slice if there are none.
func chunk(devices []resourceapi.Device) []resourceslice.Slice {
	if len(devices) == 0 {
		return []resourceslice.Slice{{}}
	}
	var out []resourceslice.Slice
	for part := range slices.Chunk(devices, MaxDevicesPerSlice) {
		out = append(out, resourceslice.Slice{Devices: part})
	}
	return out
}

// device describes one device of the node.
func (o Options) device(d gpu.Device, driver gpu.Driver) resourceapi.Device {
	published := resourceapi.Device{
		Name:       string(d.Name()),
		Attributes: attributes(d, driver, o.DriverName),
		Capacity:   capacity(d, o.DriverName),
	}
	if replicas(d) > 1 {
		several := true
		published.AllowMultipleAllocations = &several
	}
	published.Taints = o.taints(d)
	return published
}

// taints are why a device gets no new claims.
func (o Options) taints(d gpu.Device) (taints []resourceapi.DeviceTaint) {
	taint := func(name, value string) {
		taints = append(taints, resourceapi.DeviceTaint{
			Key: o.DriverName + "/" + name, Value: value, Effect: resourceapi.DeviceTaintEffectNoSchedule,
		})
	}
	if slices.ContainsFunc(o.Owed, func(debt gpu.PendingCleanup) bool { return debt.Blocks(d) }) {
		taint(DebtTaint, "")
	}
	if o.Leaving[gpu.PoolDevice{Pool: o.Layout.Of(d.Parent()).Pool(o.NodeName, d.Parent()), Device: d.Name()}] {
		taint(LeavingTaint, "")
	}
	if o.Conflict != "" {
		taint(ConflictTaint, string(o.Conflict))
	}
	return taints
}
