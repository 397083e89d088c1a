package publish

import (
	"math"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Capacity names in the driver's own domain. Every device has memory; whole GPUs and MIG devices have the others where the
// driver tells.
const (
	CapMemory          = "memory"
	CapMultiprocessors = "multiprocessors"
	CapCopyEngines     = "copyEngines"
	CapDecoders        = "decoders"
	CapEncoders        = "encoders"
	CapJPEGEngines     = "jpegEngines"
	CapOFAEngines      = "ofaEngines"
)

type capacitySet = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity

// capacity lists how much of the GPU a device stands for. A monitor device gives nothing of it: its memory is for information
// and for selectors that run over all device types.
func capacity(d gpu.Device) capacitySet {
	c := d.Parent().Capacity
	if slice, ok := d.(gpu.MIGDevice); ok {
		c = slice.Profile.Capacity
	}
	set := capacitySet{CapMemory: quantity(c.MemoryBytes, resource.BinarySI)}
	switch d.(type) {
	case gpu.Whole, gpu.MIGDevice:
		addEngines(set, c)
	case gpu.Monitor:
	}
	return set
}

// addEngines adds the counts that are known. Zero is not published: it can mean "none" and "the driver does not tell".
func addEngines(set capacitySet, c gpu.Capacity) {
	for name, n := range map[resourceapi.QualifiedName]uint32{
		CapMultiprocessors: c.Multiprocessors,
		CapCopyEngines:     c.CopyEngines,
		CapDecoders:        c.Decoders,
		CapEncoders:        c.Encoders,
		CapJPEGEngines:     c.JPEGEngines,
		CapOFAEngines:      c.OFAEngines,
	} {
		if n > 0 {
			set[name] = quantity(uint64(n), resource.DecimalSI)
		}
	}
}

// quantity is a capacity without a request policy: the whole of it, to one claim.
func quantity(n uint64, format resource.Format) resourceapi.DeviceCapacity {
	return resourceapi.DeviceCapacity{Value: *resource.NewQuantity(int64(min(n, math.MaxInt64)), format)}
}
