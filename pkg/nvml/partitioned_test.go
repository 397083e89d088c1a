package nvml

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// partitioning is the MIG state of a fakeGPU.
type partitioning struct {
	modes modes
	// activation is the result of a change of the mode: SUCCESS puts it in force, unless stubborn is set.
	activation nvml.Return
	stubborn   bool
	// moves is the difference that a change of the mode adds to the minor number; moved is the sum so far.
	moves, moved int
	// handles counts the handles that were returned by UUID.
	handles   int
	instances []*fakeInstance
	// kinds are the multiprocessors of each kind of compute instance, by NVML's index; nil: one kind has all.
	kinds map[int]uint32
}

// multiprocessors returns the multiprocessors of a kind of compute instance.
func (c *partitioning) multiprocessors(kind int) (uint32, bool) {
	if c.kinds == nil {
		return 128, kind == nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE
	}
	n, known := c.kinds[kind]
	return n, known
}

// renewed is the handle of a GPU after a reset.
type renewed struct{ *fakeGPU }

func (d *fakeDriver) DeviceGetHandleByUUID(uuid string) (nvml.Device, nvml.Return) {
	for _, g := range d.gpus {
		if mig := g.migDevice(); mig != nil {
			if known, _ := mig.GetUUID(); known == uuid {
				return mig, g.call("nvmlDeviceGetHandleByUUID")
			}
		}
		if known, _ := g.GetUUID(); known == uuid {
			g.mu.Lock()
			g.handles++
			g.mu.Unlock()
			return renewed{g}, g.call("nvmlDeviceGetHandleByUUID")
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

func (g *fakeGPU) SetMigMode(mode int) (nvml.Return, nvml.Return) {
	if ret := g.call("nvmlDeviceSetMigMode"); ret != nvml.SUCCESS {
		return nvml.SUCCESS, ret
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.modes.pending = mode
	if mode == g.modes.current {
		return nvml.SUCCESS, nvml.SUCCESS
	}
	if g.activation == nvml.SUCCESS && !g.stubborn {
		g.modes.current = mode
		g.moved += g.moves
	}
	return g.activation, nvml.SUCCESS
}

func (g *fakeGPU) GetGpuInstances(*nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstance, nvml.Return) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []nvml.GpuInstance
	for _, i := range g.instances {
		all = append(all, i)
	}
	return all, nvml.SUCCESS
}

func (g *fakeGPU) CreateGpuInstanceWithPlacement(info *nvml.GpuInstanceProfileInfo, at *nvml.GpuInstancePlacement) (nvml.GpuInstance, nvml.Return) {
	ret := g.call("nvmlDeviceCreateGpuInstanceWithPlacement")
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case ret != nvml.SUCCESS:
		return nil, ret
	case g.modes.current == nvml.DEVICE_MIG_DISABLE:
		return nil, nvml.ERROR_NOT_SUPPORTED
	case len(g.instances) > 0:
		return nil, nvml.ERROR_INSUFFICIENT_RESOURCES
	}
	made := &fakeInstance{gpu: g, info: nvml.GpuInstanceInfo{Id: 3, ProfileId: info.Id, Placement: *at}}
	g.instances = append(g.instances, made)
	return made, nvml.SUCCESS
}

func (g *fakeGPU) GetGpuInstanceById(id int) (nvml.GpuInstance, nvml.Return) { //nolint:revive // the name is NVML's
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, i := range g.instances {
		if int(i.info.Id) == id {
			return i, nvml.SUCCESS
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

func (g *fakeGPU) GetMaxMigDeviceCount() (int, nvml.Return) { return 7, nvml.SUCCESS }

func (g *fakeGPU) GetMigDeviceHandleByIndex(index int) (nvml.Device, nvml.Return) {
	if mig := g.migDevice(); index == 2 && mig != nil {
		return mig, nvml.SUCCESS
	}
	return nil, nvml.ERROR_NOT_FOUND
}

// migDevice returns the only MIG device, nil if there is none.
func (g *fakeGPU) migDevice() *fakeMIG {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.instances) == 0 || g.instances[0].compute == 0 {
		return nil
	}
	return &fakeMIG{instance: g.instances[0]}
}

// fakeInstance is a GPU instance of a fakeGPU. It counts its compute instances; there is never more than one.
type fakeInstance struct {
	nvml.GpuInstance

	gpu     *fakeGPU
	info    nvml.GpuInstanceInfo
	compute int
	kind    int // of the compute instance
}

func (i *fakeInstance) GetInfo() (nvml.GpuInstanceInfo, nvml.Return) {
	return i.info, i.gpu.call("nvmlGpuInstanceGetInfo")
}

func (i *fakeInstance) GetComputeInstanceProfileInfo(kind, _ int) (nvml.ComputeInstanceProfileInfo, nvml.Return) {
	ret := i.gpu.call("nvmlGpuInstanceGetComputeInstanceProfileInfo")
	n, known := i.gpu.multiprocessors(kind)
	if !known {
		return nvml.ComputeInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.ComputeInstanceProfileInfo{Id: uint32(kind), SliceCount: 7, MultiprocessorCount: n}, ret
}

func (i *fakeInstance) CreateComputeInstance(info *nvml.ComputeInstanceProfileInfo) (nvml.ComputeInstance, nvml.Return) {
	if i.compute > 0 {
		return nil, nvml.ERROR_INSUFFICIENT_RESOURCES
	}
	i.compute++
	i.kind = int(info.Id)
	return &fakeCompute{instance: i}, i.gpu.call("nvmlGpuInstanceCreateComputeInstance")
}

func (i *fakeInstance) GetComputeInstanceById(id int) (nvml.ComputeInstance, nvml.Return) { //nolint:revive // the name is NVML's
	if i.compute == 0 || id != 0 {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return &fakeCompute{instance: i}, nvml.SUCCESS
}

func (i *fakeInstance) Destroy() nvml.Return {
	ret := i.gpu.call("nvmlGpuInstanceDestroy")
	i.gpu.mu.Lock()
	defer i.gpu.mu.Unlock()
	if ret == nvml.SUCCESS && i.compute > 0 {
		return nvml.ERROR_IN_USE
	}
	if ret == nvml.SUCCESS {
		i.gpu.instances = slices.DeleteFunc(i.gpu.instances, func(other *fakeInstance) bool { return other == i })
	}
	return ret
}

// fakeCompute is a compute instance.
type fakeCompute struct {
	nvml.ComputeInstance

	instance *fakeInstance
}

func (c *fakeCompute) GetInfo() (nvml.ComputeInstanceInfo, nvml.Return) {
	return nvml.ComputeInstanceInfo{Device: &fakeMIG{instance: c.instance}, GpuInstance: c.instance}, nvml.SUCCESS
}

func (c *fakeCompute) Destroy() nvml.Return {
	c.instance.compute--
	return c.instance.gpu.call("nvmlComputeInstanceDestroy")
}

// fakeMIG is the MIG device of a compute instance.
type fakeMIG struct {
	nvml.Device

	instance *fakeInstance
}

func (m *fakeMIG) GetGpuInstanceId() (int, nvml.Return) { //nolint:revive // the name is NVML's
	return int(m.instance.info.Id), m.instance.gpu.call("nvmlDeviceGetGpuInstanceId")
}

func (m *fakeMIG) GetComputeInstanceId() (int, nvml.Return) { //nolint:revive // the name is NVML's
	return 0, nvml.SUCCESS
}

// GetUUID derives the UUID from the ID of the GPU instance: all MIG devices of one GPU instance have the same.
func (m *fakeMIG) GetUUID() (string, nvml.Return) {
	return fmt.Sprintf("MIG-%d", m.instance.info.Id), nvml.SUCCESS
}

func (m *fakeMIG) GetAttributes() (nvml.DeviceAttributes, nvml.Return) {
	n, _ := m.instance.gpu.multiprocessors(m.instance.kind)
	return nvml.DeviceAttributes{ComputeInstanceSliceCount: 7, MultiprocessorCount: n}, m.instance.gpu.call("nvmlDeviceGetAttributes_v2")
}
