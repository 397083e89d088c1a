package publish

import (
	"maps"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// timeSlice publishes GPUs that several claims share by time-slicing.
type timeSlice struct{}

// Type is gpu.TypeTimeSlice.
func (timeSlice) Type() gpu.DeviceType { return gpu.TypeTimeSlice }

// enforcedByContainer is the memory enforcement of a share whose container cannot allocate more than it requested.
const enforcedByContainer = "container"

// Attributes are the common ones. The memory that a share requests is a limit if the node can set one.
func (timeSlice) Attributes(d gpu.Device, common Attributes, _ string) Attributes {
	if d.Parent().MemoryLimits {
		common[AttrMemoryEnforcement] = text(enforcedByContainer)
	}
	return common
}

// Capacities are memory and shares.
func (timeSlice) Capacities(d gpu.Device, _ *gpu.Node, _ string) Capacities { return WithMemory(d) }

// Counters are all, which the claims of one GPU take together.
func (timeSlice) Counters(_ gpu.Device, all Counters) Counters { return maps.Clone(all) }

// Compare finds no order: there is one per GPU.
func (timeSlice) Compare(_, _ gpu.Device) int { return 0 }
