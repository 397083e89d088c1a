package abi

import "github.com/prism-gpu/prism/test/simgpu/model"

// computeProfileCount is NVML_COMPUTE_INSTANCE_PROFILE_COUNT.
const computeProfileCount = 9

func gpuInstanceInfo(c *call) error {
	gi, err := c.session.GPUInstance(c.device())
	if err != nil {
		return err
	}
	return c.put(1, record{}.u64(uint64(gi.Parent)).u32(gi.ID, gi.Profile.ID, gi.Placement.Start, gi.Placement.Size))
}

func destroyGPUInstance(c *call) error {
	return c.session.DestroyGPUInstance(c, c.device(), c.caller.Root)
}

// computeProfile finds a profile, and the GPU instance whose engines it shares.
func (c *call) computeProfile() (model.ComputeProfile, model.GPUInstance, error) {
	none := model.ComputeProfile{}
	gi, err := c.session.GPUInstance(c.device())
	if err != nil {
		return none, gi, err
	}
	index, engines := c.u32(1), c.u32(2)
	if index >= computeProfileCount || engines != 0 {
		return none, gi, model.InvalidArgument
	}
	for _, p := range gi.Profile.ComputeProfiles() {
		if p.ID == index {
			return p, gi, nil
		}
	}
	return none, gi, model.NotSupported
}

func computeProfileInfo(c *call) error {
	p, gi, err := c.computeProfile()
	if err != nil {
		return err
	}
	return c.put(3, computeNumbers(record{}, p, gi))
}

func computeNumbers(r record, p model.ComputeProfile, gi model.GPUInstance) record {
	return r.u32(p.ID, uint32(p.Slices), uint32(p.Instances), uint32(p.Multiprocessors)).u32(counts(gi.Profile.Engines)...)
}

func computeProfileInfoV(c *call) error {
	v2, v3 := structVersion(computeInfoV2Size, 2), structVersion(computeInfoV3Size, 3)
	version, err := c.checkVersion(3, c.known(v2, v3)...)
	if err != nil {
		return err
	}
	p, gi, err := c.computeProfile()
	if err != nil {
		return err
	}
	info := computeNumbers(record{}.u32(version), p, gi).chars("MIG "+p.Name, nameSize)
	if version == v3 {
		info = info.u32(flag(gi.Profile.Graphics))
	}
	return c.put(3, info)
}

func createComputeInstance(c *call) error {
	h, err := c.session.CreateComputeInstance(c, c.device(), c.u32(1), c.caller.Root)
	if err != nil {
		return err
	}
	return c.putU64(2, uint64(h))
}

func createComputeInstanceAt(c *call) error {
	h, err := c.session.CreateComputeInstanceAt(c, c.device(), c.u32(1), c.placement(), c.caller.Root)
	if err != nil {
		return err
	}
	return c.putU64(3, uint64(h))
}

// computePlacements returns the number of placements if the caller passes no array.
func computePlacements(c *call) error {
	gi, err := c.session.GPUInstance(c.device())
	if err != nil {
		return err
	}
	for _, p := range gi.Profile.ComputeProfiles() {
		if p.ID == c.u32(1) {
			return c.putPlacements(gi.Profile.ComputePlacements(p))
		}
	}
	return model.NotSupported
}

func remainingComputeCapacity(c *call) error {
	fit, err := c.session.RemainingComputeCapacity(c.device(), c.u32(1))
	if err != nil {
		return err
	}
	return c.putU32(2, uint32(fit))
}

func destroyComputeInstance(c *call) error {
	return c.session.DestroyComputeInstance(c, c.device(), c.caller.Root)
}

func computeInstances(c *call) error {
	list, err := c.session.ComputeInstances(c.device(), c.u32(1), c.caller.Root)
	return c.putHandles(list, err)
}

func computeInstanceByID(c *call) error {
	h, err := c.session.ComputeInstanceByID(c.device(), c.u32(1), c.caller.Root)
	if err != nil {
		return err
	}
	return c.putU64(2, uint64(h))
}

func computeInstanceInfo(c *call) error { return c.putComputeInstance(computeInstanceSize) }

// computeInstanceInfoV1 is the struct without the placement.
func computeInstanceInfoV1(c *call) error { return c.putComputeInstance(computeInstanceV1Size) }

func (c *call) putComputeInstance(size int) error {
	ci, err := c.session.ComputeInstance(c.device())
	if err != nil {
		return err
	}
	info := record{}.u64(uint64(ci.Parent), uint64(ci.Instance)).u32(ci.ID, ci.Profile.ID, ci.Placement.Start, ci.Placement.Size)
	return c.put(1, info[:size])
}
