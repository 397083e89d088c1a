package model

// MIGDevice is a compute instance as programs see it.
type MIGDevice struct {
	GPU      Handle // the GPU that it is part of
	UUID     string
	Name     string // "NVIDIA A30 MIG 1g.6gb"
	Instance GPUInstance
	Compute  ComputeInstance
	Board    Board
	Used     uint64 // memory of its contexts, in bytes
}

// MIGDeviceByIndex finds a MIG device of a GPU that the session sees: they are in the order of their instances' ids. It fails with NotFound
// if there are fewer, InvalidArgument for an index that the board never reaches, and NotSupported on a board without MIG.
func (s *Session) MIGDeviceByIndex(h Handle, index int) (Handle, error) {
	var found Handle
	err := s.with(h, func(g *gpu) error {
		switch {
		case !g.board.MIG.Capable():
			return NotSupported
		case index < 0 || index >= g.board.MIG.MaxDevices:
			return InvalidArgument
		}
		for _, gi := range g.mig.instances {
			for _, ci := range gi.compute {
				if !s.shows(g, gi, ci) {
					continue
				}
				if index == 0 {
					found = ci.device
					return nil
				}
				index--
			}
		}
		return NotFound
	})
	return found, err
}

// migIndex returns the index by which MIGDeviceByIndex finds a MIG device.
func (s *Session) migIndex(h Handle) (index int, err error) {
	err = s.withParent(h, func(g *gpu) error {
		for _, gi := range g.mig.instances {
			for _, ci := range gi.compute {
				switch {
				case !s.shows(g, gi, ci):
				case ci.device == h:
					return nil
				default:
					index++
				}
			}
		}
		return InvalidArgument
	})
	return index, err
}

// MIGDevice describes a MIG device by its handle, which is invalid once the device is gone.
func (s *Session) MIGDevice(h Handle) (MIGDevice, error) {
	var device MIGDevice
	err := s.withParent(h, func(g *gpu) error {
		gi, ci := g.mig.compute(func(ci *computeInstance) bool { return ci.device == h })
		if ci == nil || !s.shows(g, gi, ci) {
			return InvalidArgument
		}
		parent := handleOf(g.id.Ordinal)
		device = MIGDevice{
			GPU: parent, UUID: ci.uuid, Name: g.board.Product.Name + " MIG " + ci.profile.Name, Instance: gi.describe(g),
			Compute: ComputeInstance{Parent: parent, Instance: gi.handle, ID: ci.id, Profile: ci.profile, Placement: ci.placement},
			Board:   g.board, Used: min(ci.cuda.used()+gi.scriptedMemory(s.node.now()), gi.profile.MemoryMiB*mebi),
		}
		return nil
	})
	return device, err
}

// migByUUID finds a MIG device that the session sees.
func (s *Session) migByUUID(uuid string) (Handle, error) {
	for _, g := range s.visible {
		var found Handle
		err := s.with(handleOf(g.id.Ordinal), func(g *gpu) error {
			gi, ci := g.mig.compute(func(ci *computeInstance) bool { return ci.uuid == uuid })
			if ci != nil && s.shows(g, gi, ci) {
				found = ci.device
			}
			return nil
		})
		if err != nil || found != 0 {
			return found, err
		}
	}
	return 0, NotFound
}

// MIGDeviceSnapshot is a MIG device of a Snapshot, with the ids of its instances.
type MIGDeviceSnapshot struct {
	GPUInstance     uint32    `json:"gpuInstance"`
	ComputeInstance *uint32   `json:"computeInstance,omitempty"` // nil: a GPU instance without one
	Profile         string    `json:"profile"`
	Placement       Placement `json:"placement"`
	UUID            string    `json:"uuid,omitempty"`
	Clients         int       `json:"clients,omitempty"`
	Samples         int       `json:"samples,omitempty"` // of GPM that hold the GPU instance

	Load *LoadSnapshot `json:"load,omitempty"` // of the GPU instance, of Snapshot only
}

// snapshot lists all instances, including GPU instances without a compute instance.
func (g *gpu) migSnapshot(load bool) []MIGDeviceSnapshot {
	var list []MIGDeviceSnapshot
	var levels []Quantities
	if load {
		_, levels = g.levels(g.at)
	}
	for i, gi := range g.mig.instances {
		shown := MIGDeviceSnapshot{
			GPUInstance: gi.id, Profile: gi.profile.Name, Placement: gi.placement, Samples: gi.sampled,
		}
		if load {
			shown.Load = gi.meter.snapshot(levels[i])
		}
		if len(gi.compute) == 0 {
			list = append(list, shown)
		}
		for _, ci := range gi.compute {
			shown.ComputeInstance, shown.UUID, shown.Clients = &ci.id, ci.uuid, ci.clients+len(ci.cuda.contexts)
			shown.Profile = ci.profile.Name
			list = append(list, shown)
		}
	}
	return list
}
