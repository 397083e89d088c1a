package abi

import (
	"encoding/binary"
	"errors"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Sizes of structs in bytes.
const (
	fieldValueSize    = 40
	violationSize     = 16
	histogramSize     = 20
	processSampleSize = 32
)

// Functions that read the counters of a GPU.
var counterSymbols = []Symbol{
	device("nvmlDeviceGetFieldValues", 0, fieldValues, filled("values", fieldValueSize)),
	device("nvmlDeviceGetTotalEnergyConsumption", 0, energy, outU64("millijoules")),
	device("nvmlDeviceGetPcieReplayCounter", 0, sense(pcieReplays), outU32("replays")),
	device("nvmlDeviceGetTotalEccErrors", 0, eccErrors, u32("type"), u32("counter"), outU64("count")),
	device("nvmlDeviceGetRetiredPages", 0, retiredPages, u32("cause"), counted("pages", 8)),
	device("nvmlDeviceGetRetiredPagesPendingStatus", 0, retiredPending, outU32("pending")),
	device("nvmlDeviceGetRemappedRows", 0, remappedRows, outU32("correctable"), outU32("uncorrectable"), outU32("pending"), outU32("failed")),
	device("nvmlDeviceGetRowRemapperHistogram", 0, rowHistogram, out("values", histogramSize)),
	device("nvmlDeviceGetViolationStatus", 0, violation, u32("policy"), out("time", violationSize)),
	device("nvmlDeviceGetNvLinkState", 0, linkState, u32("link"), outU32("active")),
	device("nvmlDeviceGetNvLinkVersion", 0, linkVersion, u32("link"), outU32("version")),
	device("nvmlDeviceGetNvLinkErrorCounter", 0, linkErrors, u32("link"), u32("counter"), outU64("count")),
	device("nvmlDeviceGetProcessUtilization", 0, processUtilization, listed("samples", processSampleSize), u64("lastSeen")),
}

// fieldValues reads each field by itself; a MIG device has no fields.
func fieldValues(c *call) error {
	bytes := c.args[1].Bytes
	if len(bytes) == 0 {
		return model.InvalidArgument
	}
	r, err := c.session.Read(c.device())
	if err != nil && !errors.Is(err, model.NotSupported) {
		return err
	}
	values := record{}
	for ; len(bytes) >= fieldValueSize; bytes = bytes[fieldValueSize:] {
		id, scope := binary.LittleEndian.Uint32(bytes), binary.LittleEndian.Uint32(bytes[4:])
		value, code := model.FieldValue{}, model.NotSupported
		if err == nil {
			value, code = fieldOf(r, id, scope)
		}
		values = values.u32(id, scope).u64(uint64(r.At.UnixMicro()), 1).u32(uint32(value.Type), uint32(code)).u64(value.Value)
	}
	return c.put(1, values)
}

func fieldOf(r model.Reading, id, scope uint32) (model.FieldValue, model.Return) {
	value, err := r.Field(id, scope)
	code := model.Success
	if err != nil && !errors.As(err, &code) {
		code = model.Unknown
	}
	return value, code
}

var energy = reading(func(c *call, r model.Reading) error { return c.putU64(1, r.Millijoules()) })

func pcieReplays(r model.Reading) uint32 { return uint32(r.Sums[model.QuantityPCIeReplays]) }

// eccErrors: type 0 is corrected, counter 0 since the driver was loaded.
var eccErrors = reading(func(c *call, r model.Reading) error {
	if c.u32(1) > 1 || c.u32(2) > 1 {
		return model.InvalidArgument
	}
	counts := r.Sums
	if c.u32(2) == 1 {
		counts = r.Lifetime
	}
	if c.u32(1) == 0 {
		return c.putU64(3, uint64(counts[model.QuantityECCCorrected]))
	}
	return c.putU64(3, uint64(counts[model.QuantityECCUncorrected]))
})

// pageSize is the size of a retired page.
const pageSize = 64 << 10

// retiredPages answers with meaningless addresses.
var retiredPages = reading(func(c *call, r model.Reading) error {
	causes := []model.Quantity{model.QuantityRetiredCorrected, model.QuantityRetiredUncorrected}
	switch {
	case !r.Board.RetiresPages():
		return model.NotSupported
	case int(c.u32(1)) >= len(causes):
		return model.InvalidArgument
	}
	count := uint32(r.Lifetime[causes[c.u32(1)]])
	c.outputs[2] = record{}.u32(count)
	if count > c.u32(2) {
		return model.InsufficientSize
	}
	addresses := record{}
	for i := range count {
		addresses = addresses.u64(uint64(i) * pageSize)
	}
	return c.put(3, addresses)
})

var retiredPending = reading(func(c *call, r model.Reading) error {
	if !r.Board.RetiresPages() {
		return model.NotSupported
	}
	return c.putU32(1, flag(r.Health.RetirementPending))
})

var remappedRows = reading(func(c *call, r model.Reading) error {
	if !r.RemappedRows() {
		return model.NotSupported
	}
	c.outputs[1] = record{}.u32(uint32(r.Lifetime[model.QuantityRowsCorrectable]))
	c.outputs[2] = record{}.u32(uint32(r.Lifetime[model.QuantityRowsUncorrectable]))
	c.outputs[3] = record{}.u32(flag(r.Health.RowRemapPending))
	return c.putU32(4, flag(r.RowRemapFailed()))
})

// banks is the number of banks of a board's memory.
const banks = 640

// rowHistogram answers that all spare rows of all banks are available.
var rowHistogram = reading(func(c *call, r model.Reading) error {
	if !r.RemappedRows() {
		return model.NotSupported
	}
	return c.put(1, record{}.u32(banks, 0, 0, 0, 0))
})

// policies are the reasons of nvmlDeviceGetViolationStatus; the sums after them count nothing.
var policies = map[uint32]model.Quantity{
	0: model.QuantityThrottlePower, 1: model.QuantityThrottleThermal, 2: model.QuantityThrottleSyncBoost,
	3: model.QuantityThrottleBoard, 4: model.QuantityThrottleLowUtilization, 5: model.QuantityThrottleReliability,
}

var violation = reading(func(c *call, r model.Reading) error {
	q, known := policies[c.u32(1)]
	time := record{}.u64(uint64(r.At.UnixMicro()))
	switch {
	case c.u32(1) == 10 || c.u32(1) == 11:
		return c.put(2, time.u64(0))
	case !known:
		return model.InvalidArgument
	}
	return c.put(2, time.u64(r.Nanoseconds(q)))
})

// maxLinks is NVML_NVLINK_MAX_LINKS.
const maxLinks = 36

// ofLink runs f for a link of the board.
func ofLink(f func(*call, model.Reading) error) answer {
	return reading(func(c *call, r model.Reading) error {
		switch count := r.Board.Sensors().Links; {
		case c.u32(1) >= maxLinks:
			return model.InvalidArgument
		case count == 0 || int(c.u32(1)) >= count:
			return model.NotSupported
		}
		return f(c, r)
	})
}

var (
	linkState   = ofLink(func(c *call, _ model.Reading) error { return c.putU32(2, 1) })
	linkVersion = ofLink(func(c *call, r model.Reading) error { return c.putU32(2, r.Board.Sensors().LinkVersion) })
)

// linkErrors: replay, recovery, CRC flit, CRC data. The sum is divided equally among the links; the first also gets the rest.
var linkErrors = ofLink(func(c *call, r model.Reading) error {
	counters := []model.Quantity{
		model.QuantityNVLinkReplays, model.QuantityNVLinkRecoveries, model.QuantityNVLinkFlitErrors, model.QuantityNVLinkDataErrors,
	}
	if int(c.u32(2)) >= len(counters) {
		return model.InvalidArgument
	}
	all, count := uint64(r.Sums[counters[c.u32(2)]]), uint64(r.Board.Sensors().Links)
	part := all / count
	if c.u32(1) == 0 {
		part += all % count
	}
	return c.putU64(3, part)
})

// sampleBuffer is the number of samples that the driver keeps.
const sampleBuffer = 100

// processUtilization answers the size of the buffer if the caller passes none.
func processUtilization(c *call) error {
	list, err := c.session.ProcessUtilization(c.device(), c.u64(3))
	if err != nil {
		return err
	}
	samples, count := record{}, uint32(0)
	for _, s := range list {
		if pid, seen := c.processID(s.PID); seen {
			samples = samples.u32(uint32(pid), 0).u64(s.Time).u32(s.SM, s.Memory, 0, 0)
			count++
		}
	}
	switch {
	case count == 0:
		return model.NotFound
	case c.args[1].Size < len(samples):
		c.outputs[2] = record{}.u32(max(count, sampleBuffer))
		return model.InsufficientSize
	}
	c.outputs[1] = samples
	return c.putU32(2, count)
}
