package publish

import (
	"maps"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// whole publishes GPUs as they are.
type whole struct{}

// Type is gpu.TypeGPU.
func (whole) Type() gpu.DeviceType { return gpu.TypeGPU }

// Attributes are the common ones, with how memory is limited.
func (whole) Attributes(_ gpu.Device, common Attributes, _ string) Attributes {
	common[AttrMemoryEnforcement] = text(enforcementHardware)
	return common
}

// Capacities are memory and engines.
func (whole) Capacities(d gpu.Device, _ *gpu.Node, _ string) Capacities { return withEngines(d) }

// Counters are all.
func (whole) Counters(_ gpu.Device, all Counters) Counters { return maps.Clone(all) }

// Compare finds no order: a GPU has one.
func (whole) Compare(_, _ gpu.Device) int { return 0 }
