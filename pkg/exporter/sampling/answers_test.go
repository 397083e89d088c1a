package sampling

import (
	"math"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// answering is a GPU with a different value for each call, including calls that no simulated board supports: fans and a vGPU license.
type answering struct {
	bareGPU
	state   nvml.Pstates
	fan     uint32
	license uint32
}

func newAnswering() *answering {
	return &answering{
		bareGPU: bareGPU{fields: func(values []nvml.FieldValue) {
			for i := range values {
				values[i].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
			}
		}},
		state: nvml.PSTATE_2, fan: 37, license: 1,
	}
}

func (*answering) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) { //nolint:revive // NVML's name
	return nvml.Memory_v2{Total: 1000, Used: 300, Free: 600, Reserved: 100}, nvml.SUCCESS
}

func (*answering) GetTemperature(nvml.TemperatureSensors) (uint32, nvml.Return) {
	return 61, nvml.SUCCESS
}

func (*answering) GetUtilizationRates() (nvml.Utilization, nvml.Return) {
	return nvml.Utilization{Gpu: 41, Memory: 43}, nvml.SUCCESS
}

func (*answering) GetClockInfo(kind nvml.ClockType) (uint32, nvml.Return) {
	return map[nvml.ClockType]uint32{nvml.CLOCK_SM: 1001, nvml.CLOCK_MEM: 1002, nvml.CLOCK_GRAPHICS: 1003, nvml.CLOCK_VIDEO: 1004}[kind], nvml.SUCCESS
}

func (*answering) GetCurrentClocksEventReasons() (uint64, nvml.Return) { return 0x24, nvml.SUCCESS }
func (*answering) GetPowerUsage() (uint32, nvml.Return)                { return 123_456, nvml.SUCCESS }
func (*answering) GetEnforcedPowerLimit() (uint32, nvml.Return)        { return 350_500, nvml.SUCCESS }
func (*answering) GetEncoderUtilization() (uint32, uint32, nvml.Return) {
	return 11, 1, nvml.SUCCESS
}

func (*answering) GetDecoderUtilization() (uint32, uint32, nvml.Return) {
	return 13, 1, nvml.SUCCESS
}
func (*answering) GetJpgUtilization() (uint32, uint32, nvml.Return)   { return 17, 1, nvml.SUCCESS }
func (*answering) GetOfaUtilization() (uint32, uint32, nvml.Return)   { return 19, 1, nvml.SUCCESS }
func (a *answering) GetPerformanceState() (nvml.Pstates, nvml.Return) { return a.state, nvml.SUCCESS }
func (*answering) GetCurrPcieLinkGeneration() (int, nvml.Return)      { return 5, nvml.SUCCESS }
func (*answering) GetCurrPcieLinkWidth() (int, nvml.Return)           { return 8, nvml.SUCCESS }
func (a *answering) GetFanSpeed() (uint32, nvml.Return)               { return a.fan, nvml.SUCCESS }

func (*answering) GetBAR1MemoryInfo() (nvml.BAR1Memory, nvml.Return) {
	return nvml.BAR1Memory{Bar1Total: 256, Bar1Used: 64, Bar1Free: 192}, nvml.SUCCESS
}

func (a *answering) GetGridLicensableFeatures() (nvml.GridLicensableFeatures, nvml.Return) {
	l := nvml.GridLicensableFeatures{IsGridLicenseSupported: 1, LicensableFeaturesCount: 1}
	l.GridLicensableFeatures[0].FeatureState = a.license
	return l, nvml.SUCCESS
}

// readAll returns the values of as many rounds as it takes to call each reader.
func readAll(t *testing.T, g *answering) map[metrics.Field]float64 {
	t.Helper()
	d := bareDriver(t, &bare{}, &bareGPU{})
	d.devices["GPU-0"].handle = g
	var values metrics.Values
	for range most {
		d.devices["GPU-0"].calls = 0
		values = metrics.Values{}
		require.NoError(t, d.Values(t.Context(), "GPU-0", allFields(), &values))
	}
	return valuesOf(&values)
}

// TestValues_EveryCall_FieldAndUnitOfItsOwn: checks each field without a field value.
func TestValues_EveryCall_FieldAndUnitOfItsOwn(t *testing.T) {
	t.Parallel()
	want := map[metrics.Field]float64{
		metrics.FieldMemoryTotal: 1000, metrics.FieldMemoryUsed: 300, metrics.FieldMemoryFree: 600, metrics.FieldMemoryReserved: 100,
		metrics.FieldTemperatureGPU: 61, metrics.FieldUtilization: 0.41, metrics.FieldUtilizationMemory: 0.43,
		metrics.FieldClockSM: 1001e6, metrics.FieldClockMemory: 1002e6, metrics.FieldClockGraphics: 1003e6, metrics.FieldClockVideo: 1004e6,
		metrics.FieldClockEventReasons: 0x24, metrics.FieldPowerUsage: 123.456, metrics.FieldPowerLimit: 350.5,
		metrics.FieldUtilizationEncoder: 0.11, metrics.FieldUtilizationDecoder: 0.13, metrics.FieldUtilizationJPEG: 0.17, metrics.FieldUtilizationOFA: 0.19,
		metrics.FieldPerformanceState: 2, metrics.FieldPCIeLinkGeneration: 5, metrics.FieldPCIeLinkWidth: 8,
		metrics.FieldFanSpeed: 0.37, metrics.FieldBAR1Total: 256, metrics.FieldBAR1Used: 64, metrics.FieldVGPULicense: 1,
	}
	assert.InDeltaMapValues(t, want, readAll(t, newAnswering()), 1e-9)
}

// TestValues_UnknownOrImpossible_NoValue: NVML's P-state "unknown" is a number, and a fan speed above 100 % is invalid.
func TestValues_UnknownOrImpossible_NoValue(t *testing.T) {
	t.Parallel()
	g := newAnswering()
	g.state, g.fan, g.license = nvml.PSTATE_15, maxPercent, 0
	values := readAll(t, g)
	assert.InDelta(t, 15, values[metrics.FieldPerformanceState], 0)
	assert.InDelta(t, 1, values[metrics.FieldFanSpeed], 0)
	assert.InDelta(t, 0, values[metrics.FieldVGPULicense], 0)
	assert.Contains(t, values, metrics.FieldVGPULicense)
	g.state, g.fan = nvml.PSTATE_UNKNOWN, maxPercent+1
	values = readAll(t, g)
	assert.NotContains(t, values, metrics.FieldPerformanceState)
	assert.NotContains(t, values, metrics.FieldFanSpeed)
}

// TestSample_EveryMetric_FieldOfItsOwn: each of GPM's numbers has a different value; an engine's field is the mean of its units.
func TestSample_EveryMetric_FieldOfItsOwn(t *testing.T) {
	t.Parallel()
	lib := &bare{metrics: func(r *nvml.GpmMetricsGetType) {
		for i := range r.NumMetrics {
			m := &r.Metrics[i]
			m.Value, m.NvmlReturn = float64(m.MetricId)/2, uint32(nvml.SUCCESS)
		}
	}}
	d := bareDriver(t, lib, &bareGPU{})
	var values metrics.Values
	for range 2 {
		require.NoError(t, d.Sample(t.Context(), "GPU-0", 5, allFields(), false, &values))
	}
	const mebibyte = 1 << 20
	assert.InDeltaMapValues(t, map[metrics.Field]float64{
		metrics.FieldUtilization: 0.005, metrics.FieldGraphicsActive: 0.005, metrics.FieldSMActive: 0.01, metrics.FieldSMOccupancy: 0.015,
		metrics.FieldIntegerActive: 0.02, metrics.FieldTensorActive: 0.025, metrics.FieldDRAMActive: 0.05, metrics.FieldFP64Active: 0.055,
		metrics.FieldFP32Active: 0.06, metrics.FieldFP16Active: 0.065,
		metrics.FieldPCIeTransmitRate: 10 * mebibyte, metrics.FieldPCIeReceiveRate: 10.5 * mebibyte,
		metrics.FieldNVLinkReceiveRate: 30 * mebibyte, metrics.FieldNVLinkTransmitRate: 30.5 * mebibyte,
		metrics.FieldUtilizationDecoder: (30 + 3.5) / 200, metrics.FieldUtilizationJPEG: (40 + 3.5) / 200, metrics.FieldUtilizationOFA: (50 + 0.5) / 200,
		metrics.FieldUtilizationEncoder: (166 + 1.5) / 200,
	}, valuesOf(&values), 1e-9)
}

// TestSample_NegativeOrNotANumber_NoValue: also of a rate, which has no upper bound.
func TestSample_NegativeOrNotANumber_NoValue(t *testing.T) {
	t.Parallel()
	for _, answer := range []float64{-1, math.NaN(), math.Inf(-1)} {
		d := bareDriver(t, &bare{metrics: func(r *nvml.GpmMetricsGetType) {
			for i := range r.NumMetrics {
				r.Metrics[i].Value, r.Metrics[i].NvmlReturn = answer, uint32(nvml.SUCCESS)
			}
		}}, &bareGPU{})
		var values metrics.Values
		for range 2 {
			require.NoError(t, d.Sample(t.Context(), "GPU-0", 5, allFields(), false, &values))
		}
		assert.Empty(t, valuesOf(&values), answer)
	}
}
