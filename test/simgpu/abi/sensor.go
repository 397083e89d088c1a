package abi

import (
	"encoding/binary"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Driver branches that introduced functions.
const (
	branchOfEngines      = 535
	branchOfReasons      = 535
	branchOfTemperatureV = 570
)

// Sizes of structs in bytes.
const (
	temperatureSize = 12
	bar1Size        = 24
	licenseSize     = 8 + 3*licensedSize
	licensedSize    = 4 + 4 + 128 + 128 + 4 + 16
)

// Functions that read the sensors of a GPU.
var sensorSymbols = []Symbol{
	device("nvmlDeviceGetUtilizationRates", 0, utilization, out("utilization", utilizationSize)),
	device("nvmlDeviceGetEncoderUtilization", 0, engineUtilization(model.QuantityEncoder), outU32("percent"), outU32("period")),
	device("nvmlDeviceGetDecoderUtilization", 0, engineUtilization(model.QuantityDecoder), outU32("percent"), outU32("period")),
	device("nvmlDeviceGetJpgUtilization", branchOfEngines, engineUtilization(model.QuantityJPEG), outU32("percent"), outU32("period")),
	device("nvmlDeviceGetOfaUtilization", branchOfEngines, engineUtilization(model.QuantityOFA), outU32("percent"), outU32("period")),
	device("nvmlDeviceGetTemperature", 0, temperature, u32("sensor"), outU32("celsius")),
	device("nvmlDeviceGetTemperatureV", branchOfTemperatureV, temperatureV, versioned("temperature")),
	device("nvmlDeviceGetPowerUsage", 0, power, outU32("milliwatts")),
	device("nvmlDeviceGetEnforcedPowerLimit", 0, powerLimit, outU32("milliwatts")),
	device("nvmlDeviceGetPowerManagementLimit", 0, powerLimit, outU32("milliwatts")),
	device("nvmlDeviceGetPowerManagementDefaultLimit", 0, powerLimit, outU32("milliwatts")),
	device("nvmlDeviceGetPerformanceState", 0, performanceState, outU32("state")),
	device("nvmlDeviceGetPowerState", 0, performanceState, outU32("state")),
	device("nvmlDeviceGetClockInfo", 0, clockInfo, u32("type"), outU32("megahertz")),
	device("nvmlDeviceGetMaxClockInfo", 0, maxClockInfo, u32("type"), outU32("megahertz")),
	device("nvmlDeviceGetCurrentClocksThrottleReasons", 0, clockReasons, outU64("reasons")),
	device("nvmlDeviceGetCurrentClocksEventReasons", branchOfReasons, clockReasons, outU64("reasons")),
	device("nvmlDeviceGetSupportedClocksThrottleReasons", 0, supportedReasons, outU64("reasons")),
	device("nvmlDeviceGetSupportedClocksEventReasons", branchOfReasons, supportedReasons, outU64("reasons")),
	device("nvmlDeviceGetBAR1MemoryInfo", 0, bar1, out("memory", bar1Size)),
	device("nvmlDeviceGetPcieThroughput", 0, pcieThroughput, u32("counter"), outU32("kibibytes")),
	device("nvmlDeviceGetInforomVersion", 0, inforomObject, u32("object"), text("version")),
	device("nvmlDeviceGetInforomImageVersion", 0, inforomImage, text("version")),
	device("nvmlDeviceGetBoardPartNumber", 0, partNumber, text("number")),
	device("nvmlDeviceGetGridLicensableFeatures_v4", 0, licenses, out("features", licenseSize)),
}

// reading runs f on the sensors and counters of a GPU.
func reading(f func(*call, model.Reading) error) answer {
	return func(c *call) error {
		r, err := c.session.Read(c.device())
		if err != nil {
			return err
		}
		return f(c, r)
	}
}

// wholeGPU is reading for values that NVML does not measure in MIG mode.
func wholeGPU(f func(*call, model.Reading) error) answer {
	return reading(func(c *call, r model.Reading) error {
		if r.MIG {
			return model.NotSupported
		}
		return f(c, r)
	})
}

// sense answers with one number of the sensors.
func sense(f func(model.Reading) uint32) answer {
	return reading(func(c *call, r model.Reading) error { return c.putU32(1, f(r)) })
}

var (
	power            = sense(model.Reading.Milliwatts)
	powerLimit       = sense(func(r model.Reading) uint32 { return r.Board.Power.Limit })
	performanceState = sense(model.Reading.PerformanceState)
	clockReasons     = reading(func(c *call, r model.Reading) error { return c.putU64(1, r.ClockReasons()) })
	supportedReasons = reading(func(c *call, r model.Reading) error { return c.putU64(1, r.SupportedClockReasons()) })
)

var utilization = wholeGPU(func(c *call, r model.Reading) error {
	return c.put(1, record{}.u32(r.Percent(model.QuantityGraphics), r.Percent(model.QuantityDRAM)))
})

// engineSampling is the sampling period of the driver for an engine, in microseconds.
const engineSampling = 167000

func engineUtilization(q model.Quantity) answer {
	return wholeGPU(func(c *call, r model.Reading) error {
		c.outputs[1] = record{}.u32(r.Percent(q))
		return c.putU32(2, engineSampling)
	})
}

var temperature = reading(func(c *call, r model.Reading) error {
	if c.u32(1) != 0 {
		return model.InvalidArgument
	}
	return c.putU32(2, r.Whole(model.QuantityTemperature))
})

var temperatureV = reading(func(c *call, r model.Reading) error {
	version, err := c.checkVersion(1, structVersion(temperatureSize, 1))
	switch {
	case err != nil:
		return err
	case binary.LittleEndian.Uint32(c.args[1].Bytes[4:]) != 0:
		return model.InvalidArgument
	}
	return c.put(1, record{}.u32(version, 0, r.Whole(model.QuantityTemperature)))
})

// clocks are the quantities of NVML's clock types: graphics, SM, memory, video.
var clocks = []model.Quantity{model.QuantitySMClock, model.QuantitySMClock, model.QuantityMemoryClock, model.QuantityVideoClock}

var clockInfo = reading(func(c *call, r model.Reading) error {
	if int(c.u32(1)) >= len(clocks) {
		return model.InvalidArgument
	}
	return c.putU32(2, r.Whole(clocks[c.u32(1)]))
})

var maxClockInfo = reading(func(c *call, r model.Reading) error {
	sm, s := uint32(r.Board.Product.PerfClockHz/1e6), r.Board.Sensors()
	most := []uint32{sm, sm, s.MemoryClock, s.VideoClock}
	if int(c.u32(1)) >= len(most) {
		return model.InvalidArgument
	}
	return c.putU32(2, most[c.u32(1)])
})

// bar1Used is the memory that the driver itself maps, in bytes.
const bar1Used = 2 << 20

var bar1 = describeAny(func(c *call, b model.Board, _ model.Identity) error {
	total := b.Sensors().BAR1MiB << 20
	return c.put(1, record{}.u64(total, total-bar1Used, bar1Used))
})

// pcieThroughput answers in KiB/s; counter 0 is sent data.
var pcieThroughput = reading(func(c *call, r model.Reading) error {
	switch c.u32(1) {
	case 0:
		return c.putU32(2, uint32(r.Now[model.QuantityPCIeTx]*1024))
	case 1:
		return c.putU32(2, uint32(r.Now[model.QuantityPCIeRx]*1024))
	}
	return model.InvalidArgument
})

// objectVersions are the versions of the objects OEM, ECC and power. No board has the last object, of encryption.
var objectVersions = []string{"2.1", "6.16", ""}

var inforomObject = describe(func(c *call, _ model.Board, _ model.Identity) error {
	object := int(c.u32(1))
	switch {
	case object > len(objectVersions):
		return model.InvalidArgument
	case object == len(objectVersions) || objectVersions[object] == "":
		return model.NotSupported
	}
	return c.putText(2, objectVersions[object])
})

var inforomImage = describe(func(c *call, b model.Board, _ model.Identity) error { return c.putText(1, b.Sensors().InfoROM) })

var partNumber = describe(func(c *call, b model.Board, _ model.Identity) error { return c.putText(1, b.Sensors().PartNumber) })

// licenses answers that there are none.
var licenses = describe(func(c *call, _ model.Board, _ model.Identity) error { return c.put(1, make([]byte, licenseSize)) })
