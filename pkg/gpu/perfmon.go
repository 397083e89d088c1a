package gpu

// TypePerfmon is the exclusive right to the performance counters of a GPU.
const TypePerfmon DeviceType = "perfmon"

// Perfmon is the right to the performance counters of a GPU, which the hardware gives to one program at a time. It is allocated in addition
// to any device of the GPU and has no effect on the hardware.
type Perfmon struct{ GPU *GPU }

// Name is "gpu-<id>-perfmon".
func (d Perfmon) Name() DeviceName { return Whole(d).Name() + "-" + DeviceName(TypePerfmon) }

// Type is TypePerfmon.
func (Perfmon) Type() DeviceType { return TypePerfmon }

// Parent is the GPU.
func (d Perfmon) Parent() *GPU { return d.GPU }

// ID is the GPU's UUID.
func (d Perfmon) ID() string { return string(d.GPU.UUID) }

// ProfileName is empty.
func (Perfmon) ProfileName() string { return "" }

// Capacity is nothing: programs see nothing of the GPU.
func (Perfmon) Capacity() Capacity { return Capacity{} }

// Shares is one.
func (Perfmon) Shares() Shares { return exclusive }

// Use excludes only another use of the device.
func (d Perfmon) Use(share bool) Use { return Use{Type: TypePerfmon, Device: d.Name(), Shared: share} }

// reserves reports whether it is the use of a Perfmon.
func (u Use) reserves() bool { return u.Type == TypePerfmon }
