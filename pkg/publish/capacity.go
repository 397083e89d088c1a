package publish

import (
	"math"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Capacity names in the driver's own domain. Every device has memory; whole GPUs and MIG devices have the others where the
// driver tells. See also CapGPUs.
const (
	CapMemory          = "memory"
	CapMultiprocessors = "multiprocessors"
	CapCopyEngines     = "copyEngines"
	CapDecoders        = "decoders"
	CapEncoders        = "encoders"
	CapJPEGEngines     = "jpegEngines"
	CapOFAEngines      = "ofaEngines"
	// CapShares counts the claims that may use a device at once; only devices for several claims have it.
	CapShares = "shares"
)

// memoryStep is what a share's memory is counted in. The API wants no step that is more than there is.
const memoryStep = 1 << 20

type capacitySet = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity

// capacity lists how much of the GPU a device stands for, and by what a claim selects a MIG device.
//
// Of a device for several claims everything is consumed, and a capacity without a policy all at once. So a claim takes one share of it,
// and of its memory what it asks for, in steps of 1Mi: that is a sum which the scheduler keeps, and no limit to the programs. Its engines
// are for information.
func capacity(d gpu.Device, driver string) capacitySet {
	c := d.Parent().Capacity
	if slice, ok := d.(gpu.MIGDevice); ok {
		c = slice.Profile.Capacity
	}
	set := capacitySet{CapMemory: quantity(c.MemoryBytes, resource.BinarySI)}
	switch d.(type) {
	case gpu.Whole, gpu.MIGDevice:
		addEngines(set, c)
	case gpu.TimeSliced, gpu.Monitor:
	}
	n := replicas(d)
	if n > 1 {
		share(set, n)
	}
	if d, ok := d.(gpu.MIGDevice); ok {
		addSelectable(set, driver, d, n)
	}
	return set
}

// replicas is how many claims may use a device at once.
func replicas(d gpu.Device) int {
	switch d := d.(type) {
	case gpu.TimeSliced:
		return d.Replicas
	case gpu.MIGDevice:
		return max(d.Replicas, 1)
	case gpu.Whole, gpu.Monitor:
	}
	return 1
}

// share makes the capacities those of a device for n claims.
func share(set capacitySet, n int) {
	for name, c := range set {
		c.RequestPolicy = &resourceapi.CapacityRequestPolicy{
			Default: whole(0), ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: whole(0)},
		}
		if name == CapMemory && c.Value.Value() >= memoryStep {
			c.RequestPolicy.ValidRange.Step = resource.NewQuantity(memoryStep, resource.BinarySI)
		}
		set[name] = c
	}
	set[CapShares] = claims(n)
}

// claims is a capacity of which each claim takes one. A device for one claim has no policy: the API allows none there.
func claims(n int) resourceapi.DeviceCapacity {
	c := resourceapi.DeviceCapacity{Value: *whole(int64(n))}
	if n > 1 {
		c.RequestPolicy = &resourceapi.CapacityRequestPolicy{
			Default: whole(1), ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: whole(1), Max: whole(1)},
		}
	}
	return c
}

// whole is a number in a policy.
func whole(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }

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
