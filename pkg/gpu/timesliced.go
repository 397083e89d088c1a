package gpu

// Replicas says how many claims may use something at once, in turns. Nothing keeps them apart but the turns: they share memory,
// faults and time.
type Replicas struct {
	// Count is how many claims there may be, 2 or more.
	Count int
	// ShareName is what an administrator calls them; empty without a name.
	ShareName string
	// Resource is the extended resource that requests one, as "nvidia.com/gpu.shared"; empty where they have the name of what is
	// shared.
	Resource string
	// Interval is how long a turn is.
	Interval Interval
}

// equal tells whether two offer the same shares in the same way; nil offers none.
func (r *Replicas) equal(other *Replicas) bool {
	if r == nil || other == nil {
		return r == other
	}
	return *r == *other
}

// TimeSliced is a GPU that several claims may use at once, in turns.
type TimeSliced struct {
	GPU *GPU
	// Replicas is how many claims there may be.
	Replicas int
	// ShareName is what an administrator calls them; empty without a name.
	ShareName string
}

// Name is "gpu-<id>-timeslice".
func (d TimeSliced) Name() DeviceName { return DeviceName("gpu-" + d.GPU.ID + "-timeslice") }

// Type is TypeTimeSlice.
func (TimeSliced) Type() DeviceType { return TypeTimeSlice }

// Parent is the GPU that is shared.
func (d TimeSliced) Parent() *GPU { return d.GPU }

func (TimeSliced) sealed() {}
