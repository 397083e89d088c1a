package publish

import (
	"math"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Capacity names in the driver's own domain. Every device has memory; whole GPUs and MIG devices have the others if the driver reports
// them. See also CapGPUs.
const (
	CapMemory          = "memory"
	CapMultiprocessors = "multiprocessors"
	CapCopyEngines     = "copyEngines"
	CapDecoders        = "decoders"
	CapEncoders        = "encoders"
	CapJPEGEngines     = "jpegEngines"
	CapOFAEngines      = "ofaEngines"
	// CapShares counts the claims that may use a device at once; only devices that are claimed in shares have it.
	CapShares = "shares"
)

// memoryStep is the unit of a share's memory. The API allows no step larger than the capacity.
const memoryStep = 1 << 20

// WithMemory returns the memory of a device, and its shares if it is for several claims.
//
// Claims consume every capacity of a device for several claims, and a capacity without a policy entirely at once. So a claim takes one
// share of it, and as much memory as it asks for, in steps of 1Mi: the scheduler keeps that sum, but it does not limit the programs. Its
// engines are for information.
func WithMemory(d gpu.Device) Capacities {
	set := Capacities{CapMemory: quantity(d.Capacity().MemoryBytes, resource.BinarySI)}
	if n := d.Shares().Count; n > 1 {
		share(set, n)
	}
	return set
}

// withEngines returns the same and the device's engines.
func withEngines(d gpu.Device) Capacities {
	c := d.Capacity()
	set := Capacities{CapMemory: quantity(c.MemoryBytes, resource.BinarySI)}
	addEngines(set, c)
	if n := d.Shares().Count; n > 1 {
		share(set, n)
	}
	return set
}

// share changes the capacities so that n claims can use the device.
func share(set Capacities, n int) {
	for name, c := range set {
		c.RequestPolicy = &resourceapi.CapacityRequestPolicy{
			Default: count(0), ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: count(0)},
		}
		if name == CapMemory && c.Value.Value() >= memoryStep {
			c.RequestPolicy.ValidRange.Step = resource.NewQuantity(memoryStep, resource.BinarySI)
		}
		set[name] = c
	}
	set[CapShares] = claims(n)
}

// claims is a capacity of which each claim takes one. The capacity of a device for one claim is without a policy, because the API allows
// none for it.
func claims(n int) resourceapi.DeviceCapacity {
	c := resourceapi.DeviceCapacity{Value: *count(int64(n))}
	if n > 1 {
		c.RequestPolicy = &resourceapi.CapacityRequestPolicy{
			Default: count(1), ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: count(1), Max: count(1)},
		}
	}
	return c
}

// count is a number in a policy.
func count(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }

// addEngines adds the counts that are known. Zero is not published: it can mean "none" and "the driver does not report it".
func addEngines(set Capacities, c gpu.Capacity) {
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

// quantity is a capacity without a request policy: all of it is allocated to one claim.
func quantity(n uint64, format resource.Format) resourceapi.DeviceCapacity {
	return resourceapi.DeviceCapacity{Value: *resource.NewQuantity(int64(min(n, math.MaxInt64)), format)}
}
