package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// profile is a kind of GPU instance, as described by the driver and by package gpu.
type profile struct {
	info  nvml.GpuInstanceProfileInfo
	facts gpu.MIGProfile
}

// ampere is the major compute capability of boards whose MIG mode changes only with a reset.
const ampere = 8

// profileInfo is the symbol of the function that describes a profile.
const profileInfo = "nvmlDeviceGetGpuInstanceProfileInfo"

// readMIG reads how a GPU can be partitioned, which does not change, and how it is partitioned now. If one profile cannot be read, no
// profile is known: GPU instances are found by their profiles, so a GPU in MIG mode is unusable then.
func readMIG(q query, b *board) error {
	if !b.facts.Product.MIGCapable {
		return nil
	}
	missing := false
	profiles := q
	profiles.incomplete = &missing
	for index := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		p, known, err := readProfile(profiles, index, b.facts.Capacity.MemoryBytes)
		if err != nil {
			return err
		}
		if known {
			b.profiles = append(b.profiles, p)
		}
	}
	if missing {
		b.profiles, b.incomplete = nil, true
	}
	if err := q.refreshMIG(b); err != nil {
		return err
	}
	b.mode = b.facts.MIG.Mode.Enabled
	if missing && b.mode {
		return fmt.Errorf("reading the MIG profiles of %s, which is in MIG mode: the driver does not report one of them: %w", q.on, gpu.ErrNotFound)
	}
	return nil
}

// readProfile reads one of NVML's profiles; false if the GPU or the driver does not have it.
func readProfile(q query, index int, memory uint64) (p profile, known bool, err error) {
	p.info, known, err = may(q, profileInfo, func() (nvml.GpuInstanceProfileInfo, nvml.Return) {
		info, ret := q.device.GetGpuInstanceProfileInfo(index)
		return info, absentProfile(ret)
	})
	if err != nil || !known {
		return p, false, err
	}
	const symbol = "nvmlDeviceGetGpuInstancePossiblePlacements_v2"
	placements, known, err := may(q, symbol, func() ([]nvml.GpuInstancePlacement, nvml.Return) {
		return q.device.GetGpuInstancePossiblePlacements(&p.info)
	})
	if err != nil || !known {
		return p, false, err
	}
	name, err := profileName(q, index, &p.info, memory)
	if err != nil || name == "" {
		*q.incomplete = true
		return p, false, err
	}
	p.facts = gpu.MIGProfile{
		ID: int(p.info.Id), Name: name, Slices: int(p.info.SliceCount), MaxInstances: int(p.info.InstanceCount),
		Capacity: gpu.Capacity{
			MemoryBytes: p.info.MemorySizeMB << 20, Multiprocessors: p.info.MultiprocessorCount, CopyEngines: p.info.CopyEngineCount,
			Decoders: p.info.DecoderCount, Encoders: p.info.EncoderCount, JPEGEngines: p.info.JpegCount, OFAEngines: p.info.OfaCount,
		},
	}
	for _, at := range placements {
		p.facts.Placements = append(p.facts.Placements, gpu.Placement{Start: int(at.Start), Size: int(at.Size)})
	}
	slices.SortFunc(p.facts.Placements, func(a, b gpu.Placement) int { return a.Start - b.Start })
	return p, len(placements) > 0, nil
}

// absentProfile converts the code for a profile that the driver does not know to the code for a profile that the GPU lacks.
func absentProfile(ret nvml.Return) nvml.Return {
	if ret == nvml.ERROR_INVALID_ARGUMENT {
		return nvml.ERROR_NOT_SUPPORTED
	}
	return ret
}

// profileName asks the driver for the name of a profile. If the driver does not report it, NVIDIA's library computes the name from the
// memory of the GPU. The name is empty if it cannot.
func profileName(q query, index int, info *nvml.GpuInstanceProfileInfo, memory uint64) (string, error) {
	q.incomplete = nil // a computed name is as good
	named, known, err := may(q, "nvmlDeviceGetGpuInstanceProfileInfoV", func() (nvml.GpuInstanceProfileInfo_v2, nvml.Return) {
		info, ret := q.device.GetGpuInstanceProfileInfoV(index).V2()
		return info, absentProfile(ret)
	})
	if err != nil {
		return "", err
	}
	name := make([]byte, 0, len(named.Name))
	for _, c := range named.Name {
		if c == 0 {
			break
		}
		name = append(name, byte(c)) //nolint:gosec // a C string
	}
	if text := strings.TrimPrefix(string(name), "MIG "); known && text != "" {
		return text, nil
	}
	computed, err := device.New(q.session.lib).NewMigProfile(index, index, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
		info.MemorySizeMB, memory)
	if err != nil || memory == 0 {
		return "", nil //nolint:nilerr // NVIDIA's library does not know the profile either
	}
	return computed.String(), nil
}

// refreshMIG reads mode and instances again.
func (q query) refreshMIG(b *board) error {
	mode, err := q.migMode(b)
	if err != nil {
		return err
	}
	instances, err := q.instances(b, mode)
	if err != nil {
		return err
	}
	b.facts.MIG = &gpu.MIG{Mode: mode, Instances: instances}
	for i := range b.profiles {
		b.facts.MIG.Profiles = append(b.facts.MIG.Profiles, b.profiles[i].facts)
	}
	return nil
}

// modes are NVML's two numbers for the MIG mode.
type modes struct{ current, pending int }

func (q query) migMode(b *board) (gpu.MIGMode, error) {
	mode, err := must(q, "nvmlDeviceGetMigMode", func() (modes, nvml.Return) {
		current, pending, ret := q.device.GetMigMode()
		return modes{current, pending}, ret
	})
	return gpu.MIGMode{
		Enabled: mode.current == nvml.DEVICE_MIG_ENABLE, Pending: mode.pending == nvml.DEVICE_MIG_ENABLE,
		NeedsReset: strings.HasPrefix(b.facts.Product.ComputeCapability, fmt.Sprintf("%d.", ampere)),
	}, err
}

// vanished converts the code for an instance that was removed after it was listed, by an administrator or by another version of this
// program.
func vanished[T any](fn func() (T, nvml.Return)) func() (T, nvml.Return) {
	return func() (T, nvml.Return) {
		value, ret := fn()
		if ret == nvml.ERROR_INVALID_ARGUMENT {
			ret = nvml.ERROR_NOT_FOUND
		}
		return value, ret
	}
}

// instances lists the GPU instances of each profile, which includes instances without a compute instance. Then it adds their compute
// instances, found by their MIG devices.
func (q query) instances(b *board, mode gpu.MIGMode) ([]gpu.Instance, error) {
	found, err := q.occupied(b, mode)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found, q.computeInstances(b, found)
}

// occupied lists the GPU instances in the order of their IDs, without compute instances.
func (q query) occupied(b *board, mode gpu.MIGMode) ([]gpu.Instance, error) {
	if !mode.Enabled {
		return nil, nil
	}
	var found []gpu.Instance
	for i := range b.profiles {
		info := &b.profiles[i].info
		handles, err := must(q, "nvmlDeviceGetGpuInstances", func() ([]nvml.GpuInstance, nvml.Return) {
			return q.device.GetGpuInstances(info)
		})
		if err != nil {
			return nil, err
		}
		for _, handle := range handles {
			instance, err := must(q, "nvmlGpuInstanceGetInfo", vanished(handle.GetInfo))
			if errors.Is(err, gpu.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			found = append(found, asInstance(&instance))
		}
	}
	slices.SortFunc(found, func(a, b gpu.Instance) int { return a.ID - b.ID })
	return found, nil
}

func asInstance(info *nvml.GpuInstanceInfo) gpu.Instance {
	return gpu.Instance{
		ID: int(info.Id), Profile: int(info.ProfileId),
		Placement: gpu.Placement{Start: int(info.Placement.Start), Size: int(info.Placement.Size)},
	}
}

// computeInstances adds the compute instances to their GPU instances.
func (q query) computeInstances(b *board, instances []gpu.Instance) error {
	return q.migDevices(func(handle nvml.Device) (bool, error) {
		return true, q.addCompute(b, handle, instances)
	})
}

// migDevices calls visit for each of the GPU's MIG devices, until visit returns more = false. visit may return gpu.ErrNotFound for a device
// that is gone.
func (q query) migDevices(visit func(handle nvml.Device) (more bool, err error)) error {
	most, err := must(q, "nvmlDeviceGetMaxMigDeviceCount", q.device.GetMaxMigDeviceCount)
	if err != nil {
		return err
	}
	for index := range most {
		handle, known, err := q.migDevice(index)
		if err != nil {
			return err
		}
		if !known {
			continue
		}
		more, err := visit(handle)
		if err != nil && !errors.Is(err, gpu.ErrNotFound) || !more {
			return err
		}
	}
	return nil
}

// addCompute adds a MIG device to its GPU instance. If that is not one of the instances, it costs one call. gpu.ErrNotFound: the MIG device
// is gone.
func (q query) addCompute(b *board, handle nvml.Device, instances []gpu.Instance) error {
	gi, err := must(q, "nvmlDeviceGetGpuInstanceId", vanished(handle.GetGpuInstanceId))
	if err != nil {
		return err
	}
	i := slices.IndexFunc(instances, func(instance gpu.Instance) bool { return instance.ID == gi })
	if i < 0 {
		return nil
	}
	compute, err := q.describe(b, handle, &instances[i])
	if err == nil {
		instances[i].Compute = append(instances[i].Compute, compute)
	}
	return err
}

// migDevice finds the MIG device at an index; false if there is none.
func (q query) migDevice(index int) (nvml.Device, bool, error) {
	handle, known, err := may(q, "nvmlDeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) {
		handle, ret := q.device.GetMigDeviceHandleByIndex(index)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			ret = nvml.ERROR_NOT_SUPPORTED
		}
		return handle, ret
	})
	return handle, known, err
}

// describe reads a MIG device of this GPU instance; gpu.ErrNotFound if it is gone.
func (q query) describe(b *board, handle nvml.Device, in *gpu.Instance) (c gpu.ComputeInstance, err error) {
	if c.ID, err = must(q, "nvmlDeviceGetComputeInstanceId", vanished(handle.GetComputeInstanceId)); err != nil {
		return c, err
	}
	uuid, err := must(q, "nvmlDeviceGetUUID", vanished(handle.GetUUID))
	if err != nil {
		return c, err
	}
	c.UUID = gpu.MIGUUID(uuid)
	return c, q.measure(b, handle, in, &c)
}

// measure adds the size of the compute instance relative to its GPU instance.
func (q query) measure(b *board, handle nvml.Device, in *gpu.Instance, c *gpu.ComputeInstance) error {
	size, err := q.size(handle)
	if err != nil {
		return err
	}
	c.Slices = int(size.ComputeInstanceSliceCount)
	c.Part, err = q.isPart(b, in.Profile, in.ID, &size)
	return err
}

// at finds an inspected GPU.
func (s *Session) at(ctx context.Context, id gpu.UUID) (query, *board, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for index := range s.boards {
		if b := s.boards[index]; b.facts.UUID == id {
			return query{ctx: ctx, session: s, on: library.GPUAt(index), device: b.device, limit: s.opts.Deadline}, &b, nil
		}
	}
	return query{}, nil, fmt.Errorf("GPU %s does not answer: %w", id, gpu.ErrNotFound)
}

// MIGMode reads the GPU's MIG mode, in one call.
func (s *Session) MIGMode(ctx context.Context, id gpu.UUID) (gpu.MIGMode, error) {
	q, b, err := s.at(ctx, id)
	if err != nil {
		return gpu.MIGMode{}, err
	}
	return q.migMode(b)
}

// Instances lists the GPU's instances with their compute instances, in the order of their IDs; none outside MIG mode.
func (s *Session) Instances(ctx context.Context, id gpu.UUID) ([]gpu.Instance, error) {
	q, b, err := s.at(ctx, id)
	if err != nil {
		return nil, err
	}
	mode, err := q.migMode(b)
	if err != nil {
		return nil, err
	}
	return q.instances(b, mode)
}

// Occupied is Instances without the compute instances. It costs one call for each profile and one for each instance.
func (s *Session) Occupied(ctx context.Context, id gpu.UUID) ([]gpu.Instance, error) {
	q, b, err := s.at(ctx, id)
	if err != nil {
		return nil, err
	}
	mode, err := q.migMode(b)
	if err != nil {
		return nil, err
	}
	return q.occupied(b, mode)
}

// Instance reads the GPU instance with that ID, and in it only the MIG device with that UUID ("" for none). It returns nil if the GPU has
// no such instance. It costs two calls, and four for the MIG device, however many others exist: the size must be read separately.
func (s *Session) Instance(ctx context.Context, id gpu.UUID, gi int, device gpu.MIGUUID) (*gpu.Instance, error) {
	q, b, err := s.at(ctx, id)
	if err != nil {
		return nil, err
	}
	_, info, err := q.instance(gi)
	if errors.Is(err, gpu.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	instance := asInstance(&info)
	if device == "" {
		return &instance, nil
	}
	err = q.addDevice(b, device, &instance)
	if errors.Is(err, gpu.ErrNotFound) {
		err = nil
	}
	return &instance, err
}

// addDevice adds the MIG device with that UUID to the GPU instance if it belongs to it; gpu.ErrNotFound: no MIG device has that UUID.
func (q query) addDevice(b *board, device gpu.MIGUUID, instance *gpu.Instance) error {
	handle, err := must(q, "nvmlDeviceGetHandleByUUID", vanished(func() (nvml.Device, nvml.Return) {
		return q.session.lib.DeviceGetHandleByUUID(string(device))
	}))
	if err != nil {
		return err
	}
	gi, err := must(q, "nvmlDeviceGetGpuInstanceId", vanished(handle.GetGpuInstanceId))
	if err != nil || gi != instance.ID {
		return err
	}
	c := gpu.ComputeInstance{UUID: device}
	if c.ID, err = must(q, "nvmlDeviceGetComputeInstanceId", vanished(handle.GetComputeInstanceId)); err != nil {
		return err
	}
	if err := q.measure(b, handle, instance, &c); err != nil {
		return err
	}
	instance.Compute = []gpu.ComputeInstance{c}
	return nil
}
