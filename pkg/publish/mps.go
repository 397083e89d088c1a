package publish

import (
	"maps"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// mpsShare publishes GPUs that several claims share with MPS.
type mpsShare struct{}

// Type is gpu.TypeMPS.
func (mpsShare) Type() gpu.DeviceType { return gpu.TypeMPS }

// Attributes are the common ones.
func (mpsShare) Attributes(_ gpu.Device, common Attributes, _ string) Attributes { return common }

// Capacities are memory and shares.
func (mpsShare) Capacities(d gpu.Device, _ *gpu.Node, _ string) Capacities { return withMemory(d) }

// Counters are all, which the claims of one GPU take together.
func (mpsShare) Counters(_ gpu.Device, all Counters) Counters { return maps.Clone(all) }

// Compare finds no order: a GPU has one.
func (mpsShare) Compare(_, _ gpu.Device) int { return 0 }
