package abi

import "github.com/prism-gpu/prism/test/simgpu/model"

// Sizes of NVML's structs in bytes.
const (
	pciInfoSize     = 68
	memorySize      = 24
	memoryV2Size    = 40
	utilizationSize = 8
	processV1Size   = 16
	processSize     = 24
	attributesSize  = 40
	profileInfoSize = 48

	placementSize         = 8
	nameSize              = 96
	profileInfoVSize      = 152
	gpuInstanceSize       = 24
	computeInfoSize       = 36
	computeInfoV2Size     = 136
	computeInfoV3Size     = 140
	computeInstanceV1Size = 24
	computeInstanceSize   = 32
	handlesSize           = 8 * 8 // room for the handles of as many instances as one GPU has
)

// describe runs f on board and identity of the call's GPU.
func describe(f func(*call, model.Board, model.Identity) error) answer {
	return func(c *call) error {
		board, id, err := c.session.Device(c.device())
		if err != nil {
			return err
		}
		return f(c, board, id)
	}
}

// boardU32 answers with a number of the board; for a MIG device, of its GPU's board.
func boardU32(f func(model.Board) uint32) answer {
	return describeAny(func(c *call, b model.Board, _ model.Identity) error { return c.putU32(1, f(b)) })
}

var (
	gpuUUID = describe(func(c *call, _ model.Board, id model.Identity) error { return c.putText(1, id.UUID) })

	gpuName = describe(func(c *call, b model.Board, _ model.Identity) error { return c.putText(1, b.Product.Name) })

	serial = describe(func(c *call, _ model.Board, id model.Identity) error { return c.putText(1, id.Serial) })

	vbios = describe(func(c *call, b model.Board, _ model.Identity) error { return c.putText(1, b.Product.VBIOS) })

	minor = describe(func(c *call, _ model.Board, id model.Identity) error { return c.putU32(1, uint32(id.Minor)) })

	module = describe(func(c *call, _ model.Board, id model.Identity) error { return c.putU32(1, uint32(id.Ordinal)+1) })

	brand          = boardU32(func(b model.Board) uint32 { return uint32(b.Product.Brand) })
	architecture   = boardU32(func(b model.Board) uint32 { return uint32(b.Compute.Architecture) })
	busWidth       = boardU32(func(b model.Board) uint32 { return uint32(b.Memory.BusWidth) })
	linkGeneration = boardU32(func(b model.Board) uint32 { return uint32(b.Product.LinkGen) })
	linkWidth      = boardU32(func(model.Board) uint32 { return 16 })
	busType        = boardU32(func(model.Board) uint32 { return 2 }) // PCIe
	enabled        = boardU32(func(model.Board) uint32 { return 1 })
	disabled       = boardU32(func(model.Board) uint32 { return 0 })
	maxMIGDevices  = boardU32(func(b model.Board) uint32 { return uint32(b.MIG.MaxDevices) })

	cores = boardU32(func(b model.Board) uint32 {
		return uint32(b.Compute.Multiprocessors * b.Compute.CoresPerMultiprocessor)
	})
)

var capability = describeAny(func(c *call, b model.Board, _ model.Identity) error {
	c.outputs[1] = record{}.u32(uint32(b.Compute.Major))
	return c.putU32(2, uint32(b.Compute.Minor))
})

var pciInfo = describeAny(func(c *call, b model.Board, id model.Identity) error {
	info := record{}.chars(id.PCI.Short(), 16).
		u32(id.PCI.Domain, id.PCI.Bus, id.PCI.Device, b.Product.PCIDevice, b.Product.PCISubsys).
		chars(id.PCI.Long(), 32)
	return c.put(1, info)
})

// memoryAffinity answers the NUMA nodes next to the GPU as a bit set, of which
// the first word is enough.
var memoryAffinity = describe(func(c *call, _ model.Board, id model.Identity) error {
	return c.put(2, word(1<<id.NUMA))
})

var eccMode = describe(func(c *call, _ model.Board, _ model.Identity) error {
	c.outputs[1] = record{}.u32(1)
	return c.putU32(2, 1)
})

func index(c *call) error {
	i, err := c.session.Index(c.device())
	if err != nil {
		return err
	}
	return c.putU32(1, uint32(i))
}

// gpuMemory is the first version of the struct, which counts reserved memory as used.
func gpuMemory(c *call) error {
	use, err := c.session.Memory(c.device())
	if err != nil {
		return err
	}
	return c.put(1, record{}.u64(use.Total, use.Free, use.Used+use.Reserved))
}

func gpuMemoryV2(c *call) error {
	use, err := c.session.Memory(c.device())
	if err != nil {
		return err
	}
	return c.put(1, record{}.u32(structVersion(memoryV2Size, 2), 0).u64(use.Total, use.Reserved, use.Free, use.Used))
}

func computeMode(c *call) error {
	mode, err := c.session.ComputeMode(c.device())
	if err != nil {
		return err
	}
	return c.putU32(1, uint32(mode))
}

func setComputeMode(c *call) error {
	return c.session.SetComputeMode(c.device(), model.ComputeMode(c.u32(1)), c.caller.Root)
}

func persistence(c *call) error {
	on, err := c.session.Persistence(c.device())
	if err != nil {
		return err
	}
	return c.putU32(1, flag(on))
}

func setPersistence(c *call) error {
	return c.session.SetPersistence(c.device(), c.u32(1) != 0, c.caller.Root)
}

func accounting(c *call) error {
	on, err := c.session.Accounting(c.device())
	if err != nil {
		return err
	}
	return c.putU32(1, flag(on))
}

func setAccounting(c *call) error {
	return c.session.SetAccounting(c.device(), c.u32(1) != 0, c.caller.Root)
}

func timeSlice(c *call) error {
	slice, err := c.session.TimeSlice(c.device())
	if err != nil {
		return err
	}
	return c.putU32(1, uint32(slice))
}

func setTimeSlice(c *call) error {
	return c.session.SetTimeSlice(c.device(), model.TimeSlice(c.u32(1)), c.caller.Root)
}

func resetGPU(c *call) error { return c.session.Reset(c.device(), c.caller.Root) }

// noProcesses answers an empty list.
var noProcesses = describe(func(c *call, _ model.Board, _ model.Identity) error { return c.putU32(1, 0) })

var notSupported = describe(func(*call, model.Board, model.Identity) error { return model.NotSupported })

var notAMIGDevice = describe(func(*call, model.Board, model.Identity) error { return model.InvalidArgument })

func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}
