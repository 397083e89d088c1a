package model

// NoInstance is the instance id of a process that uses a whole GPU.
const NoInstance = 0xffffffff

// Process is a process with a context on a GPU, as NVML lists it.
type Process struct {
	PID             int    `json:"pid"`
	Memory          uint64 `json:"memory"`      // bytes
	GPUInstance     uint32 `json:"gpuInstance"` // NoInstance on a whole GPU
	ComputeInstance uint32 `json:"computeInstance"`
	MPSClient       bool   `json:"mpsClient"`

	SM float64 `json:"sm,omitempty"` // its share of the multiprocessors of the GPU or MIG device, in percent
}

// Processes lists the processes on a GPU and its MIG devices, or on one MIG device: processes with their own context, or the clients of MPS
// servers. A process is listed once for each device.
func (s *Session) Processes(h Handle, mps bool) ([]Process, error) {
	var list []Process
	err := s.withParent(h, func(g *gpu) error {
		if h.kind() == 0 {
			list = g.cuda.processes(NoInstance, NoInstance)
		}
		known := h.kind() == 0
		for _, gi := range g.mig.instances {
			for _, ci := range gi.compute {
				if s.shows(g, gi, ci) && (h.kind() == 0 || ci.device == h) {
					list = append(list, ci.cuda.processes(gi.id, ci.id)...)
					known = true
				}
			}
		}
		if !known {
			return InvalidArgument
		}
		return nil
	})
	var chosen []Process
	for _, p := range list {
		if p.MPSClient == mps {
			chosen = append(chosen, p)
		}
	}
	return chosen, err
}

// allProcesses lists the processes on the GPU and its MIG devices.
func (g *gpu) allProcesses() []Process {
	list := g.cuda.processes(NoInstance, NoInstance)
	for _, gi := range g.mig.instances {
		for _, ci := range gi.compute {
			list = append(list, ci.cuda.processes(gi.id, ci.id)...)
		}
	}
	return list
}

func (o *occupancy) processes(gi, ci uint32) []Process {
	var list []Process
	for _, c := range o.contexts {
		added := Process{PID: c.PID, Memory: c.used, GPUInstance: gi, ComputeInstance: ci, MPSClient: c.Role == MPSClientContext, SM: o.share(c)}
		merged := false
		for i, p := range list {
			if p.PID == added.PID && p.MPSClient == added.MPSClient {
				list[i].Memory += added.Memory
				list[i].SM += added.SM
				merged = true
			}
		}
		if !merged {
			list = append(list, added)
		}
	}
	return list
}

// Multiprocessors returns the number of multiprocessors of a GPU or a MIG device.
func (s *Session) Multiprocessors(h Handle) (int, error) {
	count := 0
	err := s.withParent(h, func(g *gpu) error {
		count = g.board.Compute.Multiprocessors
		if h.kind() == 0 {
			return nil
		}
		gi, ci := g.mig.compute(func(ci *computeInstance) bool { return ci.device == h })
		if ci == nil || !s.shows(g, gi, ci) {
			return InvalidArgument
		}
		count = ci.profile.Multiprocessors
		return nil
	})
	return count, err
}

// usedMemory returns the memory of all contexts on the GPU and its MIG devices.
func (g *gpu) usedMemory() uint64 {
	var sum uint64
	for _, o := range g.occupancies() {
		sum += o.used()
	}
	return sum
}
