package metrics

import "math"

// share computes the usage of each container on the GPU and its MIG devices.
func (b *board) share() {
	var holders []*holder
	for _, d := range b.all {
		d.share()
		holders = append(holders, d.holders...)
	}
	for _, d := range b.all {
		if d.first {
			limit(b.holdersOf(d), d.value(FieldMemoryUsed)) // memory that processes share counts for each process
		}
	}
	// The memory of the GPU and of each MIG device is read one after another, while containers allocate and free memory.
	limit(holders, b.whole.value(FieldMemoryUsed))
}

// share computes the usage of each container on the device.
func (d *device) share() {
	if !d.gpu.Up {
		return
	}
	used := d.value(FieldMemoryUsed)
	if d.exclusive() {
		if d.stale() {
			return
		}
		h := d.holders[0]
		h.memory, h.utilization, h.total = math.Max(0, used-d.foreign), d.value(FieldUtilization), d.value(FieldMemoryTotal)
		return
	}
	if d.gpu.ProcessesHidden {
		return
	}
	idle := 0.0
	if d.mig != nil || math.IsNaN(d.value(FieldUtilization)) {
		idle = math.NaN()
	}
	for _, h := range d.holders {
		if len(h.ids) > 0 {
			h.memory, h.utilization = memoryOf(h.processes), utilizationOf(h.processes, idle)
		}
	}
}

// holdersOf are the containers that use a device, or another MIG device of the same GPU instance, with which it shares memory.
func (b *board) holdersOf(d *device) []*holder {
	if d.sole {
		return d.holders
	}
	var all []*holder
	for _, other := range b.migs {
		if other.mig.GPUInstance == d.mig.GPUInstance {
			all = append(all, other.holders...)
		}
	}
	return all
}

// limit lowers the memory of containers by the same factor, so that their sum does not exceed the memory in use.
func limit(holders []*holder, used float64) {
	sum := 0.0
	for _, h := range holders {
		if !math.IsNaN(h.memory) {
			sum += h.memory
		}
	}
	if sum > used {
		for _, h := range holders {
			h.memory = math.Floor(h.memory * used / sum)
		}
	}
}

// memoryOf is the memory of processes, NaN if the driver does not report it for one of them.
func memoryOf(processes []*Process) float64 {
	sum := 0.0
	for _, p := range processes {
		sum += p.MemoryBytes
	}
	return sum
}

// utilizationOf is the utilization of processes: idle if there are none, NaN if the driver reports it for none of them.
func utilizationOf(processes []*Process, idle float64) float64 {
	if len(processes) == 0 {
		return idle
	}
	sum, known := 0.0, false
	for _, p := range processes {
		if !math.IsNaN(p.SM) {
			sum, known = sum+p.SM, true
		}
	}
	if !known {
		return math.NaN()
	}
	return math.Min(1, sum)
}

// unattributed is the memory in use that is not attributed to a container, NaN if the memory in use is unknown.
func (b *board) unattributed() float64 {
	rest := b.whole.value(FieldMemoryUsed)
	for _, d := range b.all {
		for _, h := range d.holders {
			if !math.IsNaN(h.memory) {
				rest -= h.memory
			}
		}
	}
	if math.IsNaN(rest) {
		return rest
	}
	return math.Max(0, rest)
}
