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
	// Owed are the GPUs on which the effects of an earlier claim could not be undone yet. They get no new claims.
	Owed []gpu.UUID
}

// DebtTaint is the name, below the driver's domain, of the taint of a device whose GPU is owed. Its effect is NoSchedule.
const DebtTaint = "not-released"

// Resources describes everything the node offers: whole GPUs, then monitor devices, each in the order of the GPUs, in one
// pool that carries the node's name. The order is the order in which the scheduler hands devices out.
//
// A node without GPUs, and a nil node, give one empty slice: it says that the driver runs and has nothing to offer. Names in
// attributes are not qualified, which makes them the driver's own: device.attributes["<driver name>"].<name> in CEL.
func Resources(opts Options, node *gpu.Node) resourceslice.DriverResources {
	if node == nil {
		node = &gpu.Node{}
	}
	var devices []resourceapi.Device
	for _, d := range node.Devices() {
		published := device(d, node.Driver)
		if _, looks := d.(gpu.Monitor); !looks && slices.Contains(opts.Owed, d.Parent().UUID) {
			published.Taints = []resourceapi.DeviceTaint{{
				Key: opts.DriverName + "/" + DebtTaint, Effect: resourceapi.DeviceTaintEffectNoSchedule,
			}}
		}
		devices = append(devices, published)
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		opts.NodeName: {Slices: chunk(devices)},
	}}
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
func device(d gpu.Device, driver gpu.Driver) resourceapi.Device {
	return resourceapi.Device{
		Name:       string(d.Name()),
		Attributes: attributes(d, driver),
		Capacity:   capacity(d),
	}
}
