package port

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// device is a GPU of a session.
type device struct {
	*Session
	ctx    context.Context
	handle model.Handle
}

// find finds a GPU that the session sees.
func (s *Session) find(ctx context.Context, id gpu.UUID) (device, error) {
	handle, err := s.session.ByUUID(string(id))
	if err != nil {
		return device{}, fmt.Errorf("finding GPU %s: %w", id, asError("nvmlDeviceGetHandleByUUID", err))
	}
	return device{s, ctx, handle}, nil
}

// ask counts a call, applies the node's faults, and makes it.
func (d device) ask(symbol string, fn func() error) error {
	if err := d.call(d.ctx, symbol, d.handle.Ordinal()); err != nil {
		return err
	}
	return asError(symbol, fn())
}

// MIGMode reads the MIG mode; gpu.UnsupportedError on a board without MIG.
func (s *Session) MIGMode(ctx context.Context, id gpu.UUID) (gpu.MIGMode, error) {
	d, err := s.find(ctx, id)
	if err != nil {
		return gpu.MIGMode{}, err
	}
	return d.mode()
}

func (d device) mode() (gpu.MIGMode, error) {
	var mode gpu.MIGMode
	err := d.ask("nvmlDeviceGetMigMode", func() (err error) {
		mode.Enabled, mode.Pending, err = d.session.MIGMode(d.handle)
		return err
	})
	if err != nil {
		return gpu.MIGMode{}, err
	}
	board, _, err := d.session.Device(d.handle)
	mode.NeedsReset = board.MIG.NeedsReset
	return mode, asError("nvmlDeviceGetArchitecture", err)
}

// SetMIGMode returns nil only if the mode is in effect. gpu.ErrInUse: there are instances or a process uses the GPU; gpu.UnsupportedError:
// the board does not support MIG, or it changes with a reset only. No change is left pending.
func (s *Session) SetMIGMode(ctx context.Context, id gpu.UUID, on bool) error {
	d, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	const symbol = "nvmlDeviceSetMigMode"
	var activation error
	set := func(on bool) error {
		return d.ask(symbol, func() (err error) {
			activation, err = d.session.SetMIGMode(ctx, d.handle, on, true)
			return err
		})
	}
	if err := set(on); err != nil || activation == nil {
		return err
	}
	refusal := asError(symbol, activation)
	if errors.Is(activation, model.ResetRequired) {
		refusal = &gpu.UnsupportedError{Feature: "a change of the MIG mode", Needs: "a reset of the GPU"}
	}
	return errors.Join(refusal, set(!on))
}

// partitions returns the MIG profiles and instances of a GPU; nil on a board without MIG.
func (d device) partitions() (*gpu.MIG, error) {
	board, id, err := d.session.Device(d.handle)
	if err != nil || !board.MIG.Capable() {
		return nil, asError("nvmlDeviceGetMigMode", err)
	}
	var m gpu.MIG
	if m.Mode, err = d.mode(); err != nil {
		return nil, err
	}
	if m.Profiles, err = d.profiles(gpu.UUID(id.UUID)); err != nil || !m.Mode.Enabled {
		return &m, err
	}
	m.Instances, err = d.instances(m.Profiles)
	return &m, err
}

// placementsFrom is the driver branch from which instances can be created at a given placement.
const placementsFrom = 470

// profileCount is NVML's count of profile indices.
const profileCount = 18

// profiles lists the profiles in the order of NVML's index. A session reads them once.
func (d device) profiles(id gpu.UUID) ([]gpu.MIGProfile, error) {
	d.mu.Lock()
	known, ok := d.known[id]
	d.mu.Unlock()
	if ok {
		return known, nil
	}
	if version, _ := d.node.Driver(); version.Branch() < placementsFrom {
		return nil, nil
	}
	profiles, err := d.session.MIGProfiles(d.handle)
	if err != nil {
		return nil, asError("nvmlDeviceGetGpuInstanceProfileInfo", err)
	}
	var list []gpu.MIGProfile
	for index := range uint32(profileCount) {
		if err := d.ask("nvmlDeviceGetGpuInstanceProfileInfo", d.session.Alive); err != nil {
			return nil, err
		}
		i := slices.IndexFunc(profiles, func(p model.MIGProfile) bool { return p.Index == index })
		if i < 0 {
			continue
		}
		if err := d.ask("nvmlDeviceGetGpuInstancePossiblePlacements_v2", d.session.Alive); err != nil {
			return nil, err
		}
		list = append(list, describeProfile(profiles[i]))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[id] = list
	return list, nil
}

func describeProfile(p model.MIGProfile) gpu.MIGProfile {
	profile := gpu.MIGProfile{
		ID: int(p.ID), Name: p.Name, Slices: p.Slices, MaxInstances: p.Instances,
		Capacity: gpu.Capacity{
			MemoryBytes: p.MemoryMiB << 20, Multiprocessors: uint32(p.Multiprocessors), CopyEngines: uint32(p.Engines.Copy),
			Decoders: uint32(p.Engines.Decoder), Encoders: uint32(p.Engines.Encoder), JPEGEngines: uint32(p.Engines.JPEG),
			OFAEngines: uint32(p.Engines.OFA),
		},
	}
	for _, at := range p.Placements() {
		profile.Placements = append(profile.Placements, placement(at))
	}
	return profile
}

func placement(p model.Placement) gpu.Placement {
	return gpu.Placement{Start: int(p.Start), Size: int(p.Size)}
}

// Instances lists the GPU instances of a GPU by their ids, none outside MIG mode.
func (s *Session) Instances(ctx context.Context, id gpu.UUID) ([]gpu.Instance, error) {
	d, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	m, err := d.partitions()
	if err != nil || m == nil {
		return nil, err
	}
	return m.Instances, nil
}

func (d device) instances(profiles []gpu.MIGProfile) ([]gpu.Instance, error) {
	list, err := d.occupied(profiles)
	if err != nil {
		return nil, err
	}
	return list, d.fill(list)
}

// occupied lists the GPU instances by id, without compute instances.
func (d device) occupied(profiles []gpu.MIGProfile) ([]gpu.Instance, error) {
	var list []gpu.Instance
	for i := range profiles {
		var handles []model.Handle
		err := d.ask("nvmlDeviceGetGpuInstances", func() (err error) {
			handles, err = d.session.GPUInstances(d.handle, uint32(profiles[i].ID), true)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, handle := range handles {
			instance, err := d.instance(handle)
			switch {
			case errors.Is(err, model.InvalidArgument): // destroyed since it was listed
			case err != nil:
				return nil, err
			default:
				list = append(list, describeInstance(instance))
			}
		}
	}
	slices.SortFunc(list, func(a, b gpu.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

func describeInstance(i model.GPUInstance) gpu.Instance {
	return gpu.Instance{ID: int(i.ID), Profile: int(i.Profile.ID), Placement: placement(i.Placement)}
}

func (d device) instance(handle model.Handle) (model.GPUInstance, error) {
	var instance model.GPUInstance
	err := d.ask("nvmlGpuInstanceGetInfo", func() (err error) {
		instance, err = d.session.GPUInstance(handle)
		return err
	})
	return instance, err
}

// fill adds the compute instances to GPU instances.
func (d device) fill(list []gpu.Instance) error {
	devices, err := d.migDevices()
	for _, found := range devices {
		i := slices.IndexFunc(list, func(in gpu.Instance) bool { return in.ID == int(found.Instance.ID) })
		if i >= 0 {
			list[i].Compute = append(list[i].Compute, describeCompute(found))
		}
	}
	return err
}

func describeCompute(d model.MIGDevice) gpu.ComputeInstance {
	return gpu.ComputeInstance{
		ID: int(d.Compute.ID), Slices: d.Compute.Profile.Slices, UUID: gpu.MIGUUID(d.UUID),
		Part: d.Compute.Profile.Multiprocessors < d.Instance.Profile.Multiprocessors,
	}
}

// migDevices lists the MIG devices of a GPU in the order of their instances' ids.
func (d device) migDevices() ([]model.MIGDevice, error) {
	board, _, err := d.session.Device(d.handle)
	if err != nil {
		return nil, asError("nvmlDeviceGetMaxMigDeviceCount", err)
	}
	var list []model.MIGDevice
	for index := range board.MIG.MaxDevices {
		var handle model.Handle
		err := d.ask("nvmlDeviceGetMigDeviceHandleByIndex", func() (err error) {
			handle, err = d.session.MIGDeviceByIndex(d.handle, index)
			return err
		})
		if errors.Is(err, gpu.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		found, err := d.describeMIG(handle)
		switch {
		case errors.Is(err, model.InvalidArgument): // destroyed since it was listed
		case err != nil:
			return nil, err
		default:
			list = append(list, found)
		}
	}
	return list, nil
}

// describeMIG reads the UUID and the instances of a MIG device.
func (d device) describeMIG(handle model.Handle) (model.MIGDevice, error) {
	var found model.MIGDevice
	for _, symbol := range []string{"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetUUID", "nvmlDeviceGetAttributes_v2"} {
		err := d.ask(symbol, func() (err error) {
			found, err = d.session.MIGDevice(handle)
			return err
		})
		if err != nil {
			return model.MIGDevice{}, err
		}
	}
	return found, nil
}
