package model

import (
	"context"
	"slices"
	"time"
)

// computeInstance is a part of the cores of a GPU instance, and the MIG device that programs see.
type computeInstance struct {
	handle, device Handle
	id             uint32
	profile        ComputeProfile
	placement      Placement
	uuid           string
	clients        int // processes that use it without CUDA
	cuda           occupancy
}

// ComputeInstance is a compute instance as NVML reports it.
type ComputeInstance struct {
	Parent    Handle // the GPU
	Instance  Handle // the GPU instance
	ID        uint32
	Profile   ComputeProfile
	Placement Placement // in compute slices of the GPU instance
}

// CreateComputeInstance creates a compute instance at the first free place, and with it a MIG device with the UUID that belongs to this GPU
// instance id and engine. It fails with InsufficientResources when the GPU instance has too few consecutive compute slices left,
// NoPermission unless root of the host calls, NotSupported for a profile that the GPU instance does not support, and InvalidArgument for an
// unknown handle.
func (s *Session) CreateComputeInstance(ctx context.Context, h Handle, profile uint32, root bool) (Handle, error) {
	return s.createCompute(ctx, h, profile, nil, root)
}

// CreateComputeInstanceAt creates it at a placement: InvalidArgument if the profile does not allow the placement.
func (s *Session) CreateComputeInstanceAt(ctx context.Context, h Handle, profile uint32, at Placement, root bool) (Handle, error) {
	return s.createCompute(ctx, h, profile, &at, root)
}

func (s *Session) createCompute(ctx context.Context, h Handle, profile uint32, at *Placement, root bool) (Handle, error) {
	var made Handle
	err := s.change(ctx, h, root, func(g *gpu) (time.Duration, error) {
		gi := g.mig.byHandle(h)
		if gi == nil {
			return 0, InvalidArgument
		}
		p, err := gi.computeProfile(profile)
		if err != nil {
			return 0, err
		}
		wanted := gi.profile.ComputePlacements(p)
		if at != nil {
			if !slices.Contains(wanted, *at) {
				return 0, InvalidArgument
			}
			wanted = []Placement{*at}
		}
		i := slices.IndexFunc(wanted, gi.isFree)
		if i < 0 {
			return 0, InsufficientResources
		}
		made = s.node.addCompute(g, gi, p, wanted[i])
		return s.node.latency.CreateComputeInstance, nil
	})
	return made, err
}

func (gi *gpuInstance) computeProfile(id uint32) (ComputeProfile, error) {
	for _, p := range gi.profile.ComputeProfiles() {
		if p.ID == id {
			return p, nil
		}
	}
	return ComputeProfile{}, NotSupported
}

// RemainingComputeCapacity returns how many more compute instances of a profile fit into a GPU instance now.
func (s *Session) RemainingComputeCapacity(h Handle, profile uint32) (int, error) {
	fit := 0
	err := s.withInstance(h, func(_ *gpu, gi *gpuInstance) error {
		p, err := gi.computeProfile(profile)
		if err != nil {
			return err
		}
		var last Placement
		for _, at := range gi.profile.ComputePlacements(p) {
			if gi.isFree(at) && !last.Overlaps(at) {
				last = at
				fit++
			}
		}
		return nil
	})
	return fit, err
}

func (m *mig) byHandle(h Handle) *gpuInstance {
	for _, gi := range m.instances {
		if gi.handle == h {
			return gi
		}
	}
	return nil
}

// isFree reports whether no compute instance uses a compute slice of the placement.
func (gi *gpuInstance) isFree(at Placement) bool {
	return !slices.ContainsFunc(gi.compute, func(ci *computeInstance) bool { return ci.placement.Overlaps(at) })
}

func (n *Node) addCompute(g *gpu, gi *gpuInstance, p ComputeProfile, at Placement) Handle {
	id := uint32(0)
	for slices.ContainsFunc(gi.compute, func(ci *computeInstance) bool { return ci.id == id }) {
		id++
	}
	ci := &computeInstance{
		handle: n.newHandle(computeInstanceHandle, g), device: n.newHandle(migDeviceHandle, g),
		id: id, profile: p, placement: at, uuid: migUUID(g, gi.id, g.board.MIG.engine(gi.placement, at)),
	}
	gi.compute = append(gi.compute, ci)
	slices.SortFunc(gi.compute, func(a, b *computeInstance) int { return int(a.id) - int(b.id) })
	return ci.handle
}

// ComputeInstances lists the compute instances of a profile in a GPU instance.
func (s *Session) ComputeInstances(h Handle, profile uint32, root bool) ([]Handle, error) {
	var list []Handle
	err := s.withInstance(h, func(_ *gpu, gi *gpuInstance) error {
		if !s.may(root) {
			return NoPermission
		}
		for _, ci := range gi.compute {
			if ci.profile.ID == profile {
				list = append(list, ci.handle)
			}
		}
		return nil
	})
	return list, err
}

// ComputeInstanceByID finds a compute instance in a GPU instance; NotFound when there is none.
func (s *Session) ComputeInstanceByID(h Handle, id uint32, root bool) (Handle, error) {
	var found Handle
	err := s.withInstance(h, func(_ *gpu, gi *gpuInstance) error {
		if !s.may(root) {
			return NoPermission
		}
		for _, ci := range gi.compute {
			if ci.id == id {
				found = ci.handle
				return nil
			}
		}
		return NotFound
	})
	return found, err
}

// ComputeInstance describes a compute instance by its handle, which is invalid once the instance is gone.
func (s *Session) ComputeInstance(h Handle) (ComputeInstance, error) {
	var instance ComputeInstance
	err := s.withParent(h, func(g *gpu) error {
		gi, ci := g.mig.compute(func(ci *computeInstance) bool { return ci.handle == h })
		if ci == nil {
			return InvalidArgument
		}
		instance = ComputeInstance{
			Parent: handleOf(g.id.Ordinal), Instance: gi.handle, ID: ci.id, Profile: ci.profile, Placement: ci.placement,
		}
		return nil
	})
	return instance, err
}

// compute finds a compute instance and the GPU instance around it, both nil when there is none.
func (m *mig) compute(match func(*computeInstance) bool) (*gpuInstance, *computeInstance) {
	for _, gi := range m.instances {
		for _, ci := range gi.compute {
			if match(ci) {
				return gi, ci
			}
		}
	}
	return nil, nil
}

// DestroyComputeInstance removes a compute instance and its MIG device. It fails with InUse while a process uses it, NoPermission unless
// root calls, and InvalidArgument for an unknown handle.
func (s *Session) DestroyComputeInstance(ctx context.Context, h Handle, root bool) error {
	return s.change(ctx, h, root, func(g *gpu) (time.Duration, error) {
		gi, ci := g.mig.compute(func(ci *computeInstance) bool { return ci.handle == h })
		switch {
		case ci == nil:
			return 0, InvalidArgument
		case ci.inUse():
			return 0, InUse
		}
		gi.compute = slices.DeleteFunc(gi.compute, func(c *computeInstance) bool { return c == ci })
		return s.node.latency.DestroyComputeInstance, nil
	})
}
