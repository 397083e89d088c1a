package publish

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// MaxDevicesPerSlice is the API's limit for ResourceSlices whose devices carry taints or counters. It is kept for all ResourceSlices, so
// that tainting one device never moves another one to a different ResourceSlice.
const MaxDevicesPerSlice = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// Options describe the owner of the ResourceSlices, and their content besides the node's devices.
type Options struct {
	// DriverName is the domain of the keys of taints and of the capacities that select MIG devices. As gpu.nvidia.com, MIG devices have all
	// attributes that NVIDIA's driver gives them.
	DriverName string
	// NodeName is the node's name and the name of the pool of its whole GPUs.
	NodeName string
	// Layout lists the modes in which the GPUs are advertised; nil: all of them whole.
	Layout gpu.Layout
	// Additional are devices in a separate pool, in addition to the layout.
	Additional gpu.Additional
	// Families publish the devices of their types; nil: the families of this package.
	Families []DevicePublisher
	// Taints keep new claims from devices. The taints of a device are in the order of the rules.
	Taints []TaintRule
	// TaintsDropped: the API server stores no taints.
	TaintsDropped bool
	// Withheld are the types of which no device is published.
	Withheld []gpu.DeviceType
}

// Resources describes everything the node advertises. The order of devices is the order in which the scheduler allocates them.
//
// The pool that carries the node's name contains the GPUs that are advertised whole, in their order. A node without such GPUs, and a nil
// node, have one empty ResourceSlice there: it says that the driver runs. Every partitioned GPU is in its own pool. Whether there is a pool
// with additional devices is Options.Additional alone.
//
// Names in attributes are not qualified, which makes them the driver's own: device.attributes["<driver name>"].<name> in CEL. The names of
// the capacities that select MIG devices are qualified.
func Resources(opts Options, node *gpu.Node) resourceslice.DriverResources {
	return NewCatalog(opts, node).Resources(opts.Taints, opts.TaintsDropped, opts.Withheld)
}

// chunk spreads the devices, in order, over as few ResourceSlices as the API allows, and over one empty one if there are none.
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

// device describes one device of the node, without taints.
func (o Options) device(m member, node *gpu.Node) resourceapi.Device {
	published := resourceapi.Device{
		Name:       string(m.device.Name()),
		Attributes: m.family.Attributes(m.device, common(m.device, node.Driver), o.DriverName),
		Capacity:   m.family.Capacities(m.device, node, o.DriverName),
	}
	if m.device.Shares().Shared() {
		published.AllowMultipleAllocations = new(true)
	}
	return published
}
