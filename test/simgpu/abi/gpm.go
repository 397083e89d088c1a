package abi

import (
	"encoding/binary"
	"math"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Driver branches that introduced functions.
const (
	branchOfGPM    = 520
	branchOfMIGGPM = 525
)

const gpmSupportSize = 8

// Functions of GPU performance monitoring. nvmlGpmMetricsGet is written by hand in C: its struct is large and mostly empty.
var gpmSymbols = []Symbol{
	device("nvmlGpmQueryDeviceSupport", branchOfGPM, gpmSupport, exchanged("support", gpmSupportSize)),
	{Name: "nvmlGpmSampleAlloc", Since: branchOfGPM, Params: []Param{outU64("sample")}, answer: allocateSample, locate: ofNone},
	{Name: "nvmlGpmSampleFree", Since: branchOfGPM, Params: []Param{pointer("sample")}, answer: freeSample, locate: ofNone},
	device("nvmlGpmSampleGet", branchOfGPM, takeSample, pointer("sample")),
	device("nvmlGpmMigSampleGet", branchOfMIGGPM, takeInstanceSample, u32("instance"), pointer("sample")),
	{
		Name: "nvmlGpmMetricsGet", Since: branchOfGPM, Place: Written, answer: gpmMetrics, locate: ofNone,
		Params: []Param{u64("first"), u64("second"), cstring("ids"), text("values")},
	},
}

// gpmSupport writes the first version of its struct, whose version word contains no size.
func gpmSupport(c *call) error {
	if c.u32(1) != 1 {
		return model.VersionMismatch
	}
	supported, err := c.session.SupportsGPM(c.device())
	if err != nil {
		return err
	}
	return c.put(1, record{}.u32(1, flag(supported)))
}

func allocateSample(c *call) error {
	id, err := c.session.AllocateSample()
	if err != nil {
		return err
	}
	return c.putU64(0, id)
}

func freeSample(c *call) error { return c.session.FreeSample(c.u64(0)) }

func takeSample(c *call) error { return c.session.Sample(c.device(), c.u64(1)) }

func takeInstanceSample(c *call) error {
	return c.session.SampleInstance(c.device(), c.u32(1), c.u64(2))
}

// gpmMetrics answers with code and value of each metric, 16 bytes.
func gpmMetrics(c *call) error {
	var ids []uint32
	for bytes := c.args[2].Bytes; len(bytes) >= 4; bytes = bytes[4:] {
		ids = append(ids, binary.LittleEndian.Uint32(bytes))
	}
	values, err := c.session.GPMMetrics(c.u64(0), c.u64(1), ids)
	if err != nil {
		return err
	}
	reply := record{}
	for _, v := range values {
		reply = reply.u32(uint32(v.Return), 0).u64(math.Float64bits(v.Value))
	}
	if len(reply) > c.args[3].Size {
		return model.InsufficientSize
	}
	return c.put(3, reply)
}
