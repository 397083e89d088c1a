package model

import (
	"context"
	"slices"
	"time"
)

// gpuInstance is a GPU instance with its compute instances.
type gpuInstance struct {
	handle    Handle
	id        uint32
	profile   MIGProfile
	placement Placement
	compute   []*computeInstance // by id
	meter     meter
	sampled   int // samples of GPM that hold it
}

// GPUInstance is a GPU instance as NVML reports it.
type GPUInstance struct {
	Parent    Handle
	ID        uint32
	Profile   MIGProfile
	Placement Placement
}

// profiles lists the profiles that the loaded driver supports on the board.
func (n *Node) profiles(g *gpu) []MIGProfile {
	branch := n.driver.version.Branch()
	var list []MIGProfile
	for _, p := range g.board.MIG.Profiles {
		if p.Since <= branch {
			list = append(list, p)
		}
	}
	return list
}

// MIGProfiles lists the GPU instance profiles of the GPU, independently of its mode. It fails with NotSupported on a
// board without MIG.
func (s *Session) MIGProfiles(h Handle) ([]MIGProfile, error) {
	var list []MIGProfile
	err := s.with(h, func(g *gpu) error {
		if !g.board.MIG.Capable() {
			return NotSupported
		}
		list = s.node.profiles(g)
		return nil
	})
	return list, err
}

// profileOf finds a profile by its id, on a GPU in MIG mode.
func (s *Session) profileOf(g *gpu, profile uint32) (MIGProfile, error) {
	if !g.mig.current {
		return MIGProfile{}, NotSupported
	}
	for _, p := range s.node.profiles(g) {
		if p.ID == profile {
			return p, nil
		}
	}
	return MIGProfile{}, InvalidArgument
}

// admits reports whether an instance fits beside the existing ones.
func (m *mig) admits(p MIGProfile, at Placement) bool {
	for _, gi := range m.instances {
		if gi.placement.Overlaps(at) || gi.profile.excludes(p) {
			return false
		}
	}
	return true
}

// RemainingCapacity returns how many more instances of a profile fit now.
func (s *Session) RemainingCapacity(h Handle, profile uint32) (int, error) {
	free := 0
	err := s.with(h, func(g *gpu) error {
		p, err := s.profileOf(g, profile)
		if err != nil {
			return err
		}
		for _, at := range p.Placements() {
			if g.mig.admits(p, at) {
				free++
			}
		}
		free = min(free, p.Instances)
		return nil
	})
	return free, err
}

// CreateGPUInstance creates a GPU instance at a placement, or at the first free one if at is nil. It fails with NotSupported outside MIG
// mode, NoPermission unless root calls, InvalidArgument if the GPU does not support the profile or placement, and InsufficientResources if
// the instance does not fit beside the existing ones.
func (s *Session) CreateGPUInstance(ctx context.Context, h Handle, profile uint32, at *Placement, root bool) (Handle, error) {
	var made Handle
	if h.kind() != 0 {
		return 0, InvalidArgument
	}
	err := s.change(ctx, h, root, func(g *gpu) (time.Duration, error) {
		p, err := s.profileOf(g, profile)
		if err != nil {
			return 0, err
		}
		wanted := p.Placements()
		if at != nil {
			if !slices.Contains(wanted, *at) {
				return 0, InvalidArgument
			}
			wanted = []Placement{*at}
		}
		for _, placement := range wanted {
			if g.mig.admits(p, placement) {
				made = s.node.place(g, p, placement)
				return s.node.latency.CreateGPUInstance, nil
			}
		}
		return 0, InsufficientResources
	})
	return made, err
}

// place adds an instance.
func (n *Node) place(g *gpu, p MIGProfile, at Placement) Handle {
	gi := &gpuInstance{handle: n.newHandle(gpuInstanceHandle, g), id: g.board.MIG.instanceID(at), profile: p, placement: at}
	g.mig.instances = append(g.mig.instances, gi)
	slices.SortFunc(g.mig.instances, func(a, b *gpuInstance) int { return int(a.id) - int(b.id) })
	return gi.handle
}

// GPUInstances lists the GPU instances of a profile. It fails like CreateGPUInstance.
func (s *Session) GPUInstances(h Handle, profile uint32, root bool) ([]Handle, error) {
	var list []Handle
	err := s.with(h, func(g *gpu) error {
		if !s.may(root) {
			return NoPermission
		}
		p, err := s.profileOf(g, profile)
		for _, gi := range g.mig.instances {
			if err == nil && gi.profile.ID == p.ID {
				list = append(list, gi.handle)
			}
		}
		return err
	})
	return list, err
}

// GPUInstanceByID finds a GPU instance. It fails with NotFound if there is none, else like CreateGPUInstance.
func (s *Session) GPUInstanceByID(h Handle, id uint32, root bool) (Handle, error) {
	var found Handle
	err := s.with(h, func(g *gpu) error {
		switch {
		case !s.may(root):
			return NoPermission
		case !g.mig.current:
			return NotSupported
		}
		for _, gi := range g.mig.instances {
			if gi.id == id {
				found = gi.handle
				return nil
			}
		}
		return NotFound
	})
	return found, err
}

// GPUInstance describes a GPU instance by its handle, which is invalid once the instance is gone.
func (s *Session) GPUInstance(h Handle) (GPUInstance, error) {
	var instance GPUInstance
	err := s.withInstance(h, func(g *gpu, gi *gpuInstance) error {
		instance = gi.describe(g)
		return nil
	})
	return instance, err
}

func (gi *gpuInstance) describe(g *gpu) GPUInstance {
	return GPUInstance{Parent: handleOf(g.id.Ordinal), ID: gi.id, Profile: gi.profile, Placement: gi.placement}
}

// withInstance runs f on a GPU instance under the node's lock; InvalidArgument for an unknown handle.
func (s *Session) withInstance(h Handle, f func(*gpu, *gpuInstance) error) error {
	return s.withParent(h, func(g *gpu) error {
		for _, gi := range g.mig.instances {
			if gi.handle == h {
				return f(g, gi)
			}
		}
		return InvalidArgument
	})
}

// DestroyGPUInstance removes a GPU instance. It fails with InUse while it contains compute instances or is sampled, NoPermission unless
// root calls, and InvalidArgument for an unknown handle.
func (s *Session) DestroyGPUInstance(ctx context.Context, h Handle, root bool) error {
	return s.change(ctx, h, root, func(g *gpu) (time.Duration, error) {
		i := slices.IndexFunc(g.mig.instances, func(gi *gpuInstance) bool { return gi.handle == h })
		switch {
		case i < 0:
			return 0, InvalidArgument
		case len(g.mig.instances[i].compute) > 0, g.mig.instances[i].sampled > 0:
			return 0, InUse
		}
		g.mig.instances = slices.Delete(g.mig.instances, i, i+1)
		return s.node.latency.DestroyGPUInstance, nil
	})
}
