package null

import (
	"maps"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// Publishes publishes the family's devices.
type Publishes struct{}

// Type returns Type.
func (Publishes) Type() gpu.DeviceType { return Type }

// Attributes returns the common attributes.
func (Publishes) Attributes(_ gpu.Device, common publish.Attributes, _ string) publish.Attributes {
	return common
}

// Capacities returns the memory.
func (Publishes) Capacities(d gpu.Device, _ *gpu.Node, _ string) publish.Capacities {
	return publish.WithMemory(d)
}

// Counters returns all counters.
func (Publishes) Counters(_ gpu.Device, all publish.Counters) publish.Counters {
	return maps.Clone(all)
}

// Compare returns 0: a GPU has only one null device.
func (Publishes) Compare(_, _ gpu.Device) int { return 0 }
