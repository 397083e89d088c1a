// Package null is a family of devices that only tests have: a GPU for one claim, or for several, whose step does nothing to the GPU. It
// shows the parts of a new family, one file per stage, and proves that nothing else knows the families by name.
package null

import "github.com/prism-gpu/prism/pkg/gpu"

// Type is the type of the devices.
const Type gpu.DeviceType = "null"

// Device is a GPU for one claim, or for several.
type Device struct {
	GPU *gpu.GPU
	// Replicas is the number of claims that may have the GPU at once; 0 and 1 are one.
	Replicas int
}

// Name is "gpu-<id>-null".
func (d Device) Name() gpu.DeviceName { return gpu.Whole{GPU: d.GPU}.Name() + "-null" }

// Type returns Type.
func (Device) Type() gpu.DeviceType { return Type }

// Parent returns the GPU.
func (d Device) Parent() *gpu.GPU { return d.GPU }

// ID returns the GPU's UUID.
func (d Device) ID() string { return string(d.GPU.UUID) }

// ProfileName returns "".
func (Device) ProfileName() string { return "" }

// Capacity returns the GPU's capacity.
func (d Device) Capacity() gpu.Capacity { return d.GPU.Capacity }

// Shares are the replicas.
func (d Device) Shares() gpu.Shares { return gpu.Shares{Count: max(d.Replicas, 1)} }

// Use returns the whole GPU: a use of an unknown type excludes all others.
func (d Device) Use(share bool) gpu.Use { return gpu.Use{Type: Type, Device: d.Name(), Shared: share} }

// Mode advertises a GPU as a Device with so many replicas.
type Mode struct{ Replicas int }

// Devices is the one.
func (m Mode) Devices(_ gpu.Modes, g *gpu.GPU) []gpu.Device {
	return []gpu.Device{Device{GPU: g, Replicas: m.Replicas}}
}

// Shared reports whether there are replicas.
func (m Mode) Shared() bool { return m.Replicas > 1 }
