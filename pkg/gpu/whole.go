package gpu

// TypeGPU is a whole GPU for one claim.
const TypeGPU DeviceType = "gpu"

// Whole is a GPU as it is, for one claim at a time.
type Whole struct{ GPU *GPU }

// Name is "gpu-<id>".
func (d Whole) Name() DeviceName { return DeviceName("gpu-" + d.GPU.ID) }

// Type is TypeGPU.
func (Whole) Type() DeviceType { return TypeGPU }

// Parent is the GPU itself.
func (d Whole) Parent() *GPU { return d.GPU }

// ID is the GPU's UUID.
func (d Whole) ID() string { return string(d.GPU.UUID) }

// ProfileName is empty.
func (Whole) ProfileName() string { return "" }

// Capacity is the GPU's.
func (d Whole) Capacity() Capacity { return d.GPU.Capacity }

// Shares is one.
func (Whole) Shares() Shares { return exclusive }

// Use is the whole GPU.
func (d Whole) Use(share bool) Use { return Use{Type: TypeGPU, Device: d.Name(), Shared: share} }

// wholeDevices is the GPU as it is, if it is advertised so.
func wholeDevices(o Modes, g *GPU) []Device {
	if !o.Whole {
		return nil
	}
	return o.available(Whole{GPU: g})
}
