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
	// DriverName is the domain of the keys of taints.
	DriverName string
	// NodeName is the node's name and the name of the pool of its whole GPUs.
	NodeName string
	// Layout says what the GPUs are offered as; nil: all of them whole.
	Layout gpu.Layout
	// Owed are effects of earlier claims that could not be undone yet. Devices that they block get no new claims.
	Owed []gpu.Debt
}

// DebtTaint is the name, below the driver's domain, of the taint of a device that a debt blocks. Its effect is NoSchedule.
const DebtTaint = "not-released"

// Resources describes everything the node offers. The order of devices is the order in which the scheduler hands them out.
//
// The pool that carries the node's name has the GPUs that are offered whole, then their monitor devices, each in the order of
// the GPUs. A node without such GPUs, and a nil node, have one empty slice there: it says that the driver runs. Every
// partitioned GPU has a pool of its own.
//
// Names in attributes are not qualified, which makes them the driver's own: device.attributes["<driver name>"].<name> in CEL.
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
		Attributes: attributes(d, driver),
		Capacity:   capacity(d),
	}
	if replicas(d) > 1 {
		several := true
		published.AllowMultipleAllocations = &several
	}
	if slices.ContainsFunc(o.Owed, func(debt gpu.Debt) bool { return debt.Blocks(d) }) {
		published.Taints = []resourceapi.DeviceTaint{{
			Key: o.DriverName + "/" + DebtTaint, Effect: resourceapi.DeviceTaintEffectNoSchedule,
		}}
	}
	return published
}
