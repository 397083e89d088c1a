package publish

import "github.com/prism-gpu/prism/pkg/gpu"

// perfmon publishes the devices that are the exclusive right to the performance counters of a GPU. They have the attributes that all devices
// of a GPU have, by which constraints of a claim combine them with these.
type perfmon struct{}

// Type is gpu.TypePerfmon.
func (perfmon) Type() gpu.DeviceType { return gpu.TypePerfmon }

// Attributes are the same as the attributes of a dynamic MIG device.
func (perfmon) Attributes(_ gpu.Device, common Attributes, _ string) Attributes {
	return keep(common, dynamicMIG...)
}

// Capacities are no memory, so that expressions about memory are no error, and no request for memory gets the device.
func (perfmon) Capacities(d gpu.Device, _ *gpu.Node, _ string) Capacities { return WithMemory(d) }

// Counters are none.
func (perfmon) Counters(gpu.Device, Counters) Counters { return nil }

// Compare finds no order: a GPU has one.
func (perfmon) Compare(_, _ gpu.Device) int { return 0 }
