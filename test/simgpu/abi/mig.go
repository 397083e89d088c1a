package abi

import (
	"encoding/binary"
	"errors"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// profileCount is NVML_GPU_INSTANCE_PROFILE_COUNT: indices from there on are invalid, not missing.
const profileCount = 18

// branchOfV3 is the driver branch that introduced the third version of the profile structs.
const branchOfV3 = 550

// graphics is a capability bit of a profile.
const graphics = 2

// describeAny runs f on board and identity of a GPU, or of the GPU of a MIG device.
func describeAny(f func(*call, model.Board, model.Identity) error) answer {
	return func(c *call) error {
		h := c.device()
		if h.IsMIGDevice() {
			device, err := c.session.MIGDevice(h)
			if err != nil {
				return err
			}
			h = device.GPU
		}
		board, id, err := c.session.Device(h)
		if err != nil {
			return err
		}
		return f(c, board, id)
	}
}

// either serves MIG devices and GPUs differently.
func either(mig func(*call, model.MIGDevice) error, gpu answer) answer {
	return func(c *call) error {
		if !c.device().IsMIGDevice() {
			return gpu(c)
		}
		device, err := c.session.MIGDevice(c.device())
		if err != nil {
			return err
		}
		return mig(c, device)
	}
}

var (
	uuid        = either(func(c *call, d model.MIGDevice) error { return c.putText(1, d.UUID) }, gpuUUID)
	name        = either(func(c *call, d model.MIGDevice) error { return c.putText(1, d.Name) }, gpuName)
	isMIGDevice = either(func(c *call, _ model.MIGDevice) error { return c.putU32(1, 1) }, disabled)
	parent      = either(func(c *call, d model.MIGDevice) error { return c.putU64(1, uint64(d.GPU)) }, notAMIGDevice)
	gpuInstance = either(func(c *call, d model.MIGDevice) error { return c.putU32(1, d.Instance.ID) }, notSupported)

	computeInstance = either(func(c *call, d model.MIGDevice) error { return c.putU32(1, d.Compute.ID) }, notSupported)
)

var attributes = either(func(c *call, d model.MIGDevice) error {
	p, e := d.Instance.Profile, d.Instance.Profile.Engines
	return c.put(1, record{}.u32(uint32(d.Compute.Profile.Multiprocessors)).u32(counts(e)...).
		u32(uint32(p.Slices), uint32(d.Compute.Profile.Slices)).u64(p.MemoryMiB))
}, notSupported)

func counts(e model.Engines) []uint32 {
	return []uint32{uint32(e.Copy), uint32(e.Decoder), uint32(e.Encoder), uint32(e.JPEG), uint32(e.OFA)}
}

var memory = either(func(c *call, d model.MIGDevice) error {
	total := d.Instance.Profile.MemoryMiB << 20
	return c.put(1, record{}.u64(total, total-d.Used, d.Used))
}, gpuMemory)

func memoryV2(c *call) error {
	version, err := c.checkVersion(1, structVersion(memoryV2Size, 2))
	if err != nil {
		return err
	}
	return either(func(c *call, d model.MIGDevice) error {
		total := d.Instance.Profile.MemoryMiB << 20
		return c.put(1, record{}.u32(version, 0).u64(total, 0, total-d.Used, d.Used))
	}, gpuMemoryV2)(c)
}

func migMode(c *call) error {
	current, pending, err := c.session.MIGMode(c.device())
	if err != nil {
		return err
	}
	c.outputs[1] = record{}.u32(flag(current))
	return c.putU32(2, flag(pending))
}

func setMIGMode(c *call) error {
	if c.u32(1) > 1 {
		return model.InvalidArgument
	}
	activation, err := c.session.SetMIGMode(c, c.device(), c.u32(1) == 1, c.caller.Root)
	if err != nil {
		return err
	}
	code := model.Success
	if activation != nil && !errors.As(activation, &code) {
		return activation
	}
	return c.putU32(2, uint32(code))
}

func migDeviceByIndex(c *call) error {
	h, err := c.session.MIGDeviceByIndex(c.device(), int(c.u32(1)))
	if err != nil {
		return err
	}
	return c.putU64(2, uint64(h))
}

// findProfile finds a profile of the call's GPU, and returns absent if there is none.
func (c *call) findProfile(match func(model.MIGProfile) bool, absent error) (model.MIGProfile, error) {
	list, err := c.session.MIGProfiles(c.device())
	if err != nil {
		return model.MIGProfile{}, err
	}
	for _, p := range list {
		if match(p) {
			return p, nil
		}
	}
	return model.MIGProfile{}, absent
}

func (c *call) profileByIndex() (model.MIGProfile, error) {
	index := c.u32(1)
	if index >= profileCount {
		return model.MIGProfile{}, model.InvalidArgument
	}
	return c.findProfile(func(p model.MIGProfile) bool { return p.Index == index }, model.NotSupported)
}

func (c *call) profileByID() (model.MIGProfile, error) {
	id := c.u32(1)
	return c.findProfile(func(p model.MIGProfile) bool { return p.ID == id }, model.InvalidArgument)
}

func profileInfo(c *call) error {
	p, err := c.profileByIndex()
	if err != nil {
		return err
	}
	return c.put(2, record{}.u32(p.ID, 0, uint32(p.Slices), uint32(p.Instances), uint32(p.Multiprocessors)).
		u32(counts(p.Engines)...).u64(p.MemoryMiB))
}

func profileInfoV(c *call) error     { return c.putProfile((*call).profileByIndex) }
func profileInfoByIDV(c *call) error { return c.putProfile((*call).profileByID) }

// putProfile returns the second or third version of the struct, which are equally large.
func (c *call) putProfile(find func(*call) (model.MIGProfile, error)) error {
	v2, v3 := structVersion(profileInfoVSize, 2), structVersion(profileInfoVSize, 3)
	version, err := c.checkVersion(2, c.known(v2, v3)...)
	if err != nil {
		return err
	}
	p, err := find(c)
	if err != nil {
		return err
	}
	info := record{}.u32(version, p.ID)
	if version == v2 {
		info = info.u32(0)
	}
	info = info.u32(uint32(p.Slices), uint32(p.Instances), uint32(p.Multiprocessors)).u32(counts(p.Engines)...)
	if version == v2 {
		return c.put(2, info.u32(0).u64(p.MemoryMiB).chars("MIG "+p.Name, nameSize))
	}
	return c.put(2, info.u64(p.MemoryMiB).chars("MIG "+p.Name, nameSize).u32(graphics*flag(p.Graphics), 0))
}

// known are the versions of a struct that the driver accepts.
func (c *call) known(v2, v3 uint32) []uint32 {
	version, _ := c.server.Node.Driver()
	if version.Branch() < branchOfV3 {
		return []uint32{v2}
	}
	return []uint32{v2, v3}
}

// possiblePlacements returns the number of placements if the caller passes no array.
func possiblePlacements(c *call) error {
	p, err := c.profileByID()
	if err != nil {
		return err
	}
	return c.putPlacements(p.Placements())
}

// putPlacements answers an array and its length.
func (c *call) putPlacements(placements []model.Placement) error {
	list := record{}
	for _, at := range placements {
		list = list.u32(at.Start, at.Size)
	}
	room := c.args[2].Size
	if room > 0 && room < len(list) {
		return model.InsufficientSize
	}
	if room > 0 {
		c.outputs[2] = list
	}
	return c.putU32(3, uint32(len(placements)))
}

// placement reads a placement argument.
func (c *call) placement() model.Placement {
	b := c.args[2].Bytes
	return model.Placement{Start: binary.LittleEndian.Uint32(b), Size: binary.LittleEndian.Uint32(b[4:])}
}

func remainingCapacity(c *call) error {
	free, err := c.session.RemainingCapacity(c.device(), c.u32(1))
	if err != nil {
		return err
	}
	return c.putU32(2, uint32(free))
}

func createGPUInstance(c *call) error {
	h, err := c.session.CreateGPUInstance(c, c.device(), c.u32(1), nil, c.caller.Root)
	if err != nil {
		return err
	}
	return c.putU64(2, uint64(h))
}

func createGPUInstanceAt(c *call) error {
	at := c.placement()
	h, err := c.session.CreateGPUInstance(c, c.device(), c.u32(1), &at, c.caller.Root)
	if err != nil {
		return err
	}
	return c.putU64(3, uint64(h))
}

func gpuInstances(c *call) error {
	list, err := c.session.GPUInstances(c.device(), c.u32(1), c.caller.Root)
	return c.putHandles(list, err)
}

// putHandles answers an array and its length.
func (c *call) putHandles(list []model.Handle, err error) error {
	if err != nil {
		return err
	}
	handles := record{}
	for _, h := range list {
		handles = handles.u64(uint64(h))
	}
	c.outputs[2] = handles
	return c.putU32(3, uint32(len(list)))
}

func gpuInstanceByID(c *call) error {
	h, err := c.session.GPUInstanceByID(c.device(), c.u32(1), c.caller.Root)
	if err != nil {
		return err
	}
	return c.putU64(2, uint64(h))
}
