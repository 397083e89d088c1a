package gpu

// Replicas says how many claims may share something by time-slicing. Nothing isolates them from each other but the time-slices: they
// share memory, faults and time.
type Replicas struct {
	// Count is how many claims there may be, 2 or more.
	Count int
	// ShareName is their name in the node's configuration; empty without a name.
	ShareName string
	// Resource is the extended resource that requests one, as "nvidia.com/gpu.shared"; empty if they use the name of the shared device.
	Resource string
	// Interval is the time-slice interval.
	Interval Interval
}

// equal reports whether both are the same shares in the same way; nil is without shares.
func (r *Replicas) equal(other *Replicas) bool {
	if r == nil || other == nil {
		return r == other
	}
	return *r == *other
}

// TypeTimeSlice is a GPU that several claims share by time-slicing.
const TypeTimeSlice DeviceType = "timeslice"

// TimeSliced is a GPU that several claims share by time-slicing.
type TimeSliced struct {
	GPU *GPU
	// Replicas is how many claims there may be.
	Replicas int
	// ShareName is their name in the node's configuration; empty without a name.
	ShareName string
}

// Name is "gpu-<id>-timeslice".
func (d TimeSliced) Name() DeviceName { return DeviceName("gpu-" + d.GPU.ID + "-timeslice") }

// Type is TypeTimeSlice.
func (TimeSliced) Type() DeviceType { return TypeTimeSlice }

// Parent is the GPU that is shared.
func (d TimeSliced) Parent() *GPU { return d.GPU }

// ID is the GPU's UUID.
func (d TimeSliced) ID() string { return string(d.GPU.UUID) }

// ProfileName is empty.
func (TimeSliced) ProfileName() string { return "" }

// Capacity is the GPU's, which all shares see.
func (d TimeSliced) Capacity() Capacity { return d.GPU.Capacity }

// Shares are the replicas.
func (d TimeSliced) Shares() Shares { return Shares{Count: d.Replicas, Name: d.ShareName} }

// Use is the GPU beside other shares of it.
func (d TimeSliced) Use(share bool) Use {
	return Use{Type: TypeTimeSlice, Device: d.Name(), Shared: share}
}

// timeSlicedDevices is the GPU for several claims, if it is advertised so.
func timeSlicedDevices(o Modes, g *GPU) []Device {
	if o.TimeSlice == nil {
		return nil
	}
	return o.available(TimeSliced{GPU: g, Replicas: o.TimeSlice.Count, ShareName: o.TimeSlice.ShareName})
}
