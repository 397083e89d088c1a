package null

import (
	"maps"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/publish"
)

// Publishes publishes the family's devices.
type Publishes struct{}

// Type is Type.
func (Publishes) Type() gpu.DeviceType { return Type }

// Attributes are the common ones.
func (Publishes) Attributes(_ gpu.Device, common publish.Attributes, _ string) publish.Attributes {
	return common
}

// Capacities are the memory.
func (Publishes) Capacities(d gpu.Device, _ *gpu.Node, _ string) publish.Capacities {
	return publish.WithMemory(d)
}

// Counters are all.
func (Publishes) Counters(_ gpu.Device, all publish.Counters) publish.Counters {
	return maps.Clone(all)
}

// Compare finds no order: a GPU has one.
func (Publishes) Compare(_, _ gpu.Device) int { return 0 }
