package sandbox_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// profileReport contains the values that go-nvml reads of one GPU instance profile, in each version of the struct.
type profileReport struct {
	V1         nvml.GpuInstanceProfileInfo
	Name       string
	NameV3     string
	IDs        []uint32 // of the second and third version
	Memory     []uint64
	Placements []nvml.GpuInstancePlacement
}

// migReport contains the values that go-nvml reads while it partitions a GPU.
type migReport struct {
	Modes      []int
	Profiles   []profileReport
	Remaining  []int
	Refusals   map[string]nvml.Return
	Instance   []uint32
	Compute    []uint32
	Name, UUID string
	Attributes nvml.DeviceAttributes
	Memory     uint64
	IDs        []int
	IsMIG      []bool
	ParentUUID string
	ByUUID     string
	Found      []int
	After      []nvml.Return
}

// partition creates a 3g instance on the first GPU, waits for the test, and destroys it.
func partition(c *child) error {
	if err := must("init", c.lib.Init()); err != nil {
		return err
	}
	gpu, ret := c.lib.DeviceGetHandleByIndex(0)
	if err := must("handle", ret); err != nil {
		return err
	}
	r := &migReport{Refusals: map[string]nvml.Return{}}
	p := &partitioning{child: c, gpu: gpu, report: r}
	for _, step := range []func() error{p.switchOn, p.readProfiles, p.create, p.readDevice, p.destroy} {
		if err := step(); err != nil {
			return err
		}
	}
	return c.send(r)
}

type partitioning struct {
	*child
	gpu    nvml.Device
	report *migReport
	gi     nvml.GpuInstance
	ci     nvml.ComputeInstance
	device nvml.Device
}

func (p *partitioning) switchOn() error {
	_, p.report.Refusals["create outside MIG mode"] = p.gpu.CreateGpuInstance(&nvml.GpuInstanceProfileInfo{Id: 19})
	activation, ret := p.gpu.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	if err := must("MIG mode", ret); err != nil {
		return err
	}
	current, pending, ret := p.gpu.GetMigMode()
	p.report.Modes = []int{int(activation), current, pending}
	return must("read MIG mode", ret)
}

func (p *partitioning) readProfiles() error {
	for i := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := p.gpu.GetGpuInstanceProfileInfo(i)
		if errors.Is(ret, nvml.ERROR_NOT_SUPPORTED) {
			continue
		}
		if err := must("profile", ret); err != nil {
			return err
		}
		profile := profileReport{V1: info}
		v2, ret2 := p.gpu.GetGpuInstanceProfileInfoV(i).V2()
		v3, ret3 := p.gpu.GetGpuInstanceProfileInfoV(i).V3()
		placements, ret := p.gpu.GetGpuInstancePossiblePlacements(&info)
		if err := errors.Join(must("version 2", ret2), must("version 3", ret3), must("placements", ret)); err != nil {
			return err
		}
		profile.Name, profile.NameV3, profile.Placements = cText(v2.Name[:]), cText(v3.Name[:]), placements
		profile.IDs, profile.Memory = []uint32{v2.Id, v3.Id}, []uint64{v2.MemorySizeMB, v3.MemorySizeMB}
		p.report.Profiles = append(p.report.Profiles, profile)
	}
	_, p.report.Refusals["profile out of range"] = p.gpu.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_COUNT)
	return nil
}

func (p *partitioning) create() error {
	info, _ := p.gpu.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_3_SLICE)
	at := nvml.GpuInstancePlacement{Start: 4, Size: 4}
	var ret nvml.Return
	if p.gi, ret = p.gpu.CreateGpuInstanceWithPlacement(&info, &at); ret != nvml.SUCCESS {
		return must("create", ret)
	}
	_, p.report.Refusals["occupied"] = p.gpu.CreateGpuInstanceWithPlacement(&info, &at)
	_, p.report.Refusals["no device yet"] = p.gpu.GetMigDeviceHandleByIndex(0)
	for _, profile := range p.report.Profiles {
		free, ret := p.gpu.GetGpuInstanceRemainingCapacity(&profile.V1)
		if err := must("remaining", ret); err != nil {
			return err
		}
		p.report.Remaining = append(p.report.Remaining, free)
	}
	small, ret := p.gi.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	if err := must("small compute profile", ret); err != nil {
		return err
	}
	compute, ret := p.gi.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	if err := must("compute profile", ret); err != nil {
		return err
	}
	p.ci, ret = p.gi.CreateComputeInstance(&compute)
	if err := must("create compute instance", ret); err != nil {
		return err
	}
	_, p.report.Refusals["full"] = p.gi.CreateComputeInstance(&small)
	p.report.Refusals["GPU instance in use"] = p.gi.Destroy()
	instance, ret1 := p.gi.GetInfo()
	made, ret2 := p.ci.GetInfo()
	v2, ret3 := p.gi.GetComputeInstanceProfileInfoV(nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED).V2()
	p.report.Instance = []uint32{instance.Id, instance.ProfileId, instance.Placement.Start, instance.Placement.Size}
	p.report.Compute = []uint32{made.Id, made.ProfileId, made.Placement.Start, made.Placement.Size, v2.MultiprocessorCount, v2.SharedOfaCount, v2.SharedDecoderCount}
	same, ret4 := instance.Device.GetUUID()
	if uuid, _ := p.gpu.GetUUID(); same != uuid {
		return fmt.Errorf("the instance is on %s, want %s", same, uuid)
	}
	return errors.Join(must("instance", ret1), must("compute instance", ret2), must("version 2", ret3), must("parent", ret4))
}

func (p *partitioning) readDevice() error {
	r := p.report
	var ret nvml.Return
	if p.device, ret = p.gpu.GetMigDeviceHandleByIndex(0); ret != nvml.SUCCESS {
		return must("MIG device", ret)
	}
	_, r.Refusals["second device"] = p.gpu.GetMigDeviceHandleByIndex(1)
	_, r.Refusals["minor of a MIG device"] = p.device.GetMinorNumber()
	r.UUID, _ = p.device.GetUUID()
	r.Name, _ = p.device.GetName()
	r.Attributes, _ = p.device.GetAttributes()
	memory, _ := p.device.GetMemoryInfo()
	r.Memory = memory.Total
	gi, _ := p.device.GetGpuInstanceId()
	ci, _ := p.device.GetComputeInstanceId()
	r.IDs = []int{gi, ci}
	mig, _ := p.device.IsMigDeviceHandle()
	whole, _ := p.gpu.IsMigDeviceHandle()
	r.IsMIG = []bool{mig, whole}
	parent, ret := p.device.GetDeviceHandleFromMigDeviceHandle()
	if err := must("parent", ret); err != nil {
		return err
	}
	r.ParentUUID, _ = parent.GetUUID()
	found, _ := p.lib.DeviceGetHandleByUUID(r.UUID)
	r.ByUUID, _ = found.GetUUID()
	for _, profile := range r.Profiles {
		list, ret := p.gpu.GetGpuInstances(&profile.V1)
		if err := must("instances", ret); err != nil {
			return err
		}
		r.Found = append(r.Found, len(list))
	}
	byID, ret := p.gpu.GetGpuInstanceById(gi)
	if err := must("instance by id", ret); err != nil {
		return err
	}
	list, ret := byID.GetComputeInstances(&nvml.ComputeInstanceProfileInfo{Id: 2, InstanceCount: 1})
	if err := must("compute instances", ret); err != nil {
		return err
	}
	_, ret = byID.GetComputeInstanceById(ci)
	r.Found = append(r.Found, len(list))
	return must("compute instance by id", ret)
}

// destroy fails first, while the test holds the device.
func (p *partitioning) destroy() error {
	if err := p.send(p.report.UUID); err != nil {
		return err
	}
	p.proceed()
	p.report.Refusals["device in use"] = p.ci.Destroy()
	if err := p.send(true); err != nil {
		return err
	}
	p.proceed()
	_, gone := p.device.GetUUID()
	p.report.After = append(p.report.After, gone, p.ci.Destroy())
	_, gone = p.device.GetUUID()
	p.report.After = append(p.report.After, gone, p.ci.Destroy(), p.gi.Destroy(), p.gi.Destroy())
	activation, ret := p.gpu.SetMigMode(nvml.DEVICE_MIG_DISABLE)
	p.report.After = append(p.report.After, activation, ret)
	return nil
}

// Production go-nvml partitions a GPU through the C library, with the errors of real hardware.
func TestGoNVML_MIG_PartitionsGPU(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	child := start(t, node, "mig")
	var uuid string
	child.receive(&uuid)
	assert.Equal(t, []string{"gpu0/mig/gi2/access 21", "gpu0/mig/gi2/ci0/access 22", "mig/config 1", "mig/monitor 2"}, shownCapabilities(t, node))
	release, err := node.Model.Hold(uuid)
	require.NoError(t, err)
	child.resume()
	var tried bool
	child.receive(&tried)
	release()
	child.resume()
	var got migReport
	child.receive(&got)
	child.end()

	want := migReport{
		Modes: []int{0, 1, 1},
		Refusals: map[string]nvml.Return{
			"create outside MIG mode": nvml.ERROR_NOT_SUPPORTED, "profile out of range": nvml.ERROR_INVALID_ARGUMENT,
			"occupied": nvml.ERROR_INSUFFICIENT_RESOURCES, "no device yet": nvml.ERROR_NOT_FOUND, "full": nvml.ERROR_INSUFFICIENT_RESOURCES,
			"GPU instance in use": nvml.ERROR_IN_USE, "second device": nvml.ERROR_NOT_FOUND,
			"minor of a MIG device": nvml.ERROR_INVALID_ARGUMENT, "device in use": nvml.ERROR_IN_USE,
		},
		Profiles:  profilesOf(node.Model.Boards()[0]),
		Remaining: []int{4, 2, 1, 1, 0, 1, 2},
		Instance:  []uint32{2, 9, 4, 4}, Compute: []uint32{0, 2, 0, 3, 60, 0, 3},
		Name: "NVIDIA H100 80GB HBM3 MIG 3g.40gb", UUID: uuid,
		Attributes: nvml.DeviceAttributes{
			MultiprocessorCount: 60, SharedCopyEngineCount: 3, SharedDecoderCount: 3, SharedJpegCount: 3,
			GpuInstanceSliceCount: 3, ComputeInstanceSliceCount: 3, MemorySizeMB: 40448,
		},
		Memory: 40448 << 20, IDs: []int{2, 0}, IsMIG: []bool{true, false},
		ParentUUID: node.Model.Identities()[0].UUID, ByUUID: uuid, Found: []int{0, 0, 1, 0, 0, 0, 0, 1},
		After: []nvml.Return{
			nvml.SUCCESS, nvml.SUCCESS, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_INVALID_ARGUMENT, nvml.SUCCESS,
			nvml.ERROR_INVALID_ARGUMENT, nvml.SUCCESS, nvml.SUCCESS,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("go-nvml read something else than the model holds (-want +go-nvml):\n%s", diff)
	}
	assert.False(t, node.Model.Snapshot().GPUs[0].MIG)
	assert.Equal(t, []string{"mig/config 1", "mig/monitor 2"}, shownCapabilities(t, node))
	node.UnloadDriver()
	assert.Empty(t, shownCapabilities(t, node))
	nodes, err := filepath.Glob(filepath.Join(node.Paths.Dev, "nvidia-caps/*"))
	require.NoError(t, err)
	capsDir := filepath.Join(node.Paths.Dev, "nvidia-caps")
	assert.Equal(t, []string{capsDir + "/nvidia-cap1", capsDir + "/nvidia-cap2"}, nodes, "the node is not mistaken for a container")
}

// profilesOf converts the board's profiles to NVML's structs, in the order of NVML's index.
func profilesOf(board model.Board) []profileReport {
	byIndex := map[uint32]model.MIGProfile{}
	for _, p := range board.MIG.Profiles {
		byIndex[p.Index] = p
	}
	var reports []profileReport
	for i := range uint32(nvml.GPU_INSTANCE_PROFILE_COUNT) {
		p, ok := byIndex[i]
		if !ok {
			continue
		}
		e := p.Engines
		r := profileReport{
			V1: nvml.GpuInstanceProfileInfo{
				Id: p.ID, SliceCount: uint32(p.Slices), InstanceCount: uint32(p.Instances), MultiprocessorCount: uint32(p.Multiprocessors),
				CopyEngineCount: uint32(e.Copy), DecoderCount: uint32(e.Decoder), JpegCount: uint32(e.JPEG), OfaCount: uint32(e.OFA),
				MemorySizeMB: p.MemoryMiB,
			},
			Name: "MIG " + p.Name, NameV3: "MIG " + p.Name, IDs: []uint32{p.ID, p.ID}, Memory: []uint64{p.MemoryMiB, p.MemoryMiB},
		}
		for _, at := range p.Placements() {
			r.Placements = append(r.Placements, nvml.GpuInstancePlacement{Start: at.Start, Size: at.Size})
		}
		reports = append(reports, r)
	}
	return reports
}

// dieInCreate requests an instance, and is killed meanwhile.
func dieInCreate(c *child) error {
	if err := must("init", c.lib.Init()); err != nil {
		return err
	}
	gpu, _ := c.lib.DeviceGetHandleByIndex(0)
	if _, ret := gpu.SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.SUCCESS {
		return must("MIG mode", ret)
	}
	_, ret := gpu.CreateGpuInstance(&nvml.GpuInstanceProfileInfo{Id: 19})
	return must("create", ret)
}

// A process that is killed during a creation leaves a GPU instance without a compute instance, and does not block the GPU.
func TestGoNVML_KilledInCreate_InstanceStays(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	node.Model.SetMIGLatency(model.MIGLatency{CreateGPUInstance: time.Hour})
	child := start(t, node, "crash")
	devices := func() []model.MIGDeviceSnapshot { return node.Model.Snapshot().GPUs[0].MIGDevices }
	require.Eventually(t, func() bool { return len(devices()) == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, child.command.Process.Kill())
	require.Error(t, child.command.Wait())
	node.Model.SetMIGLatency(model.MIGLatency{})
	assert.Nil(t, devices()[0].ComputeInstance)

	session, err := node.Model.Open("", []int{0})
	require.NoError(t, err)
	gpu, err := session.ByIndex(0)
	require.NoError(t, err)
	_, err = session.CreateGPUInstance(t.Context(), gpu, 19, nil, true)
	require.NoError(t, err)
}
