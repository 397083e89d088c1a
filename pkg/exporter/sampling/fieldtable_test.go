package sampling

import (
	"encoding/binary"
	"maps"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// earlier is the number of events of each persistent kind before the driver was loaded.
const earlier = 100

// levels are the values that a script sets. Each is different, so a field that is read from the wrong place gets a wrong value.
var levels = map[model.Quantity]float64{
	model.QuantityGraphics: 81, model.QuantitySM: 73, model.QuantityOccupancy: 67, model.QuantityTensor: 59, model.QuantityDRAM: 53,
	model.QuantityFP64: 47, model.QuantityFP32: 43, model.QuantityFP16: 41, model.QuantityInteger: 31, model.QuantityEncoder: 29,
	model.QuantityDecoder: 23, model.QuantityJPEG: 19, model.QuantityOFA: 17, model.QuantityMemory: 3001,
	model.QuantityPCIeTx: 101, model.QuantityPCIeRx: 103,
}

// boardLevels are the values that only a whole board reports, and the number of events of each kind.
var boardLevels = map[model.Quantity]float64{
	model.QuantityNVLinkTx: 107, model.QuantityNVLinkRx: 109, model.QuantityPower: 61.5, model.QuantityTemperature: 62,
	model.QuantityMemoryTemperature: 71, model.QuantitySMClock: 1111, model.QuantityMemoryClock: 2222, model.QuantityVideoClock: 1333,
	model.QuantityThrottlePower: 0.1, model.QuantityThrottleThermal: 0.2, model.QuantityThrottleSyncBoost: 0.3, model.QuantityThrottleBoard: 0.4,
	model.QuantityThrottleLowUtilization: 0.5, model.QuantityThrottleReliability: 0.6,
	model.QuantityECCCorrected: 3, model.QuantityECCUncorrected: 5, model.QuantityRetiredCorrected: 7, model.QuantityRetiredUncorrected: 11,
	model.QuantityRowsCorrectable: 13, model.QuantityRowsUncorrectable: 15, model.QuantityRowsFailed: 1, model.QuantityPCIeReplays: 21,
	model.QuantityNVLinkFlitErrors: 25, model.QuantityNVLinkDataErrors: 27, model.QuantityNVLinkReplays: 33, model.QuantityNVLinkRecoveries: 37,
}

// tolerance allows for values that links do not share evenly; all values differ by more.
const tolerance = 5e-4

// mib is the unit of the script's rates and memory.
const mib = 1 << 20

// ratios returns the fields of GPM and of the engines, which are the same for a GPU and a GPU instance.
func ratios() map[metrics.Field]float64 {
	want := map[metrics.Field]float64{}
	for field, q := range map[metrics.Field]model.Quantity{
		metrics.FieldUtilization: model.QuantityGraphics, metrics.FieldGraphicsActive: model.QuantityGraphics,
		metrics.FieldSMActive: model.QuantitySM, metrics.FieldSMOccupancy: model.QuantityOccupancy, metrics.FieldTensorActive: model.QuantityTensor,
		metrics.FieldDRAMActive: model.QuantityDRAM, metrics.FieldUtilizationMemory: model.QuantityDRAM, metrics.FieldFP64Active: model.QuantityFP64,
		metrics.FieldFP32Active: model.QuantityFP32, metrics.FieldFP16Active: model.QuantityFP16, metrics.FieldIntegerActive: model.QuantityInteger,
		metrics.FieldUtilizationEncoder: model.QuantityEncoder, metrics.FieldUtilizationDecoder: model.QuantityDecoder,
		metrics.FieldUtilizationJPEG: model.QuantityJPEG, metrics.FieldUtilizationOFA: model.QuantityOFA,
	} {
		want[field] = levels[q] / 100
	}
	want[metrics.FieldPCIeTransmitRate] = levels[model.QuantityPCIeTx] * mib
	want[metrics.FieldPCIeReceiveRate] = levels[model.QuantityPCIeRx] * mib
	return want
}

// wanted returns the values of a GPU after the script has run for that many seconds, for all fields of any board.
func wanted(b *model.Board, seconds float64) map[metrics.Field]float64 {
	l, s := boardLevels, b.Sensors()
	want := ratios()
	links := max(1, float64(s.Links))
	maps.Copy(want, map[metrics.Field]float64{
		metrics.FieldClockSM: 1111e6, metrics.FieldClockGraphics: 1111e6, metrics.FieldClockMemory: 2222e6, metrics.FieldClockVideo: 1333e6,
		metrics.FieldTemperatureGPU: 62, metrics.FieldTemperatureMemory: 71,
		metrics.FieldPowerUsage: 61.5, metrics.FieldPowerLimit: float64(b.Power.Limit) / 1000, metrics.FieldEnergy: 61.5 * seconds,
		metrics.FieldPerformanceState: 0, metrics.FieldClockEventReasons: 0x34,
		metrics.FieldPCIeLinkGeneration: float64(b.Product.LinkGen), metrics.FieldPCIeLinkWidth: 16,
		metrics.FieldMemoryTotal: float64(b.Memory.TotalMiB) * mib, metrics.FieldMemoryReserved: float64(b.Memory.ReservedMiB) * mib,
		metrics.FieldMemoryUsed: 3001 * mib, metrics.FieldMemoryFree: float64(b.Memory.TotalMiB-b.Memory.ReservedMiB-3001) * mib,
		metrics.FieldBAR1Total:         float64(s.BAR1MiB) * mib,
		metrics.FieldNVLinkTransmitted: 107 * mib * seconds, metrics.FieldNVLinkReceived: 109 * mib * seconds,
		metrics.FieldNVLinkTransmitRate: 107 * mib, metrics.FieldNVLinkReceiveRate: 109 * mib,
		metrics.FieldNVLinkCRCFlitErrors: 25, metrics.FieldNVLinkCRCDataErrors: 27, metrics.FieldNVLinkReplays: 33, metrics.FieldNVLinkRecoveries: 37,
		metrics.FieldPCIeReplays: 21, metrics.FieldRecoveryAction: 0,
		metrics.FieldECCCorrectedVolatile: 3, metrics.FieldECCUncorrectedVolatile: 5,
		metrics.FieldECCCorrectedAggregate: earlier + 3, metrics.FieldECCUncorrectedAggregate: earlier + 5,
		metrics.FieldRetiredPagesCorrected: earlier + 7, metrics.FieldRetiredPagesUncorrected: earlier + 11, metrics.FieldRetiredPagesPending: 0,
		metrics.FieldRowsRemappedCorrectable: earlier + 13, metrics.FieldRowsRemappedUncorrectable: earlier + 15,
		metrics.FieldRowRemapPending: 0, metrics.FieldRowRemapFailure: 1,
		metrics.FieldViolationPower: l[model.QuantityThrottlePower] * seconds, metrics.FieldViolationThermal: l[model.QuantityThrottleThermal] * seconds,
		metrics.FieldViolationSyncBoost:      l[model.QuantityThrottleSyncBoost] * seconds,
		metrics.FieldViolationBoardLimit:     l[model.QuantityThrottleBoard] * seconds,
		metrics.FieldViolationLowUtilization: l[model.QuantityThrottleLowUtilization] * seconds,
		metrics.FieldViolationReliability:    l[model.QuantityThrottleReliability] * seconds,
	})
	for link := range min(s.Links, metrics.NVLinks) {
		want[metrics.FieldNVLink0Transmitted.OfNVLink(link)] = 107 * mib * seconds / links
		want[metrics.FieldNVLink0Received.OfNVLink(link)] = 109 * mib * seconds / links
	}
	if b.Compute.Architecture == model.Blackwell {
		maps.Copy(want, map[metrics.Field]float64{
			metrics.FieldNVLinkReceiveErrors: 27, metrics.FieldNVLinkRecoveryEvents: 37, metrics.FieldNVLinkRecoveriesSuccessful: 37,
			metrics.FieldNVLinkRecoveriesFailed: 0,
		})
	}
	return want
}

// scripted runs the script on the child's GPU, which had events in an earlier load of the driver, and on its MIG devices. It returns the
// last round, and how long the script ran.
func (c *child) scripted(mig ...string) (r read, seconds float64) {
	c.t.Helper()
	whole := maps.Clone(boardLevels)
	if len(mig) == 0 {
		maps.Copy(whole, levels)
	}
	require.NoError(c.t, c.node.Model.SetLoad(c.node.Model.Identities()[0].UUID, model.Script{Steps: []model.Step{{Values: whole}}}))
	for _, device := range mig {
		require.NoError(c.t, c.node.Model.SetLoad(device, model.Script{Steps: []model.Step{{Values: levels}}}))
	}
	for range most {
		c.pass(time.Second)
		seconds++
		r = c.must("round")
	}
	return r, seconds
}

// wear reloads the driver on a board with earlier events.
func (c *child) wear() {
	c.t.Helper()
	before := map[model.Quantity]float64{}
	for q := model.QuantityECCCorrected; q <= model.QuantityNVLinkRecoveries; q++ {
		before[q] = earlier
	}
	delete(before, model.QuantityRowsFailed)
	require.NoError(c.t, c.node.Model.SetLoad(c.node.Model.Identities()[0].UUID, model.Script{Steps: []model.Step{{Values: before}}}))
	c.pass(time.Second)
	c.node.UnloadDriver()
	c.node.LoadDriver()
}

// TestRound_EveryBoard_ValuesOfTheScript: each field has the value of its own quantity, in base units.
func TestRound_EveryBoard_ValuesOfTheScript(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"t4", "a30", "a100-40", "a100-80", "l40s", "h100-80", "h200-141", "b200-180"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			board, err := model.BoardByID(id)
			require.NoError(t, err)
			c := samplingOn(t, id)
			c.wear()
			c.must("open")
			r, seconds := c.scripted()
			want := wanted(&board, seconds)
			for field, value := range r.Values {
				if field == metrics.FieldBAR1Used {
					continue // the simulated GPU does not simulate it
				}
				require.Contains(t, want, field, metrics.Table[field].Help)
				assert.InDelta(t, want[field], value, tolerance*want[field], "%s on %s", metrics.Table[field].Help, id)
			}
			assert.Greater(t, len(r.Values), 30, "there is something to compare")
		})
	}
}

// TestSources_EveryField_OwnNumber: each value of NVML is the source of one field only.
func TestSources_EveryField_OwnNumber(t *testing.T) {
	t.Parallel()
	of := map[source]metrics.Field{}
	for field, list := range sources {
		for _, from := range list {
			before, taken := of[from]
			assert.False(t, taken, "%s and %s are both %+v", metrics.Table[field].Help, metrics.Table[before].Help, from)
			of[from] = field
		}
	}
	for f := metrics.FieldNVLinkPacketsTransmitted; f < metrics.FieldCount; f++ {
		_, has := sources[f]
		rate := f >= metrics.FieldNVLink0Transmitted && (f-metrics.FieldNVLink0Transmitted)%4 >= 2
		assert.Equal(t, !rate, has, metrics.Table[f].Help)
	}
}

// TestFieldReader_BitErrorRates_WorstLink: rates are not added up, and NVML packs them.
func TestFieldReader_BitErrorRates_WorstLink(t *testing.T) {
	t.Parallel()
	r := &fieldReader{}
	r.plan(metrics.NewFieldSet(metrics.FieldNVLinkSymbolBER, metrics.FieldNVLinkSymbolErrors))
	for i := range r.values {
		r.values[i].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
		for link, packed := range []uint64{0x10f, 0x90a, 0x80a, 0xf0f} { // 1e-15, 9e-10, 8e-10, 15e-15
			if int(r.values[i].ScopeId) == link {
				r.values[i].NvmlReturn, r.values[i].ValueType = uint32(nvml.SUCCESS), uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG)
				binary.NativeEndian.PutUint64(r.values[i].Value[:], packed)
			}
		}
	}
	got := map[metrics.Field]float64{}
	for _, a := range r.asked {
		got[a.field], _, _ = r.sum(a)
	}
	assert.Equal(t, map[metrics.Field]float64{
		metrics.FieldNVLinkSymbolBER: 0x90a, metrics.FieldNVLinkSymbolErrors: 0x10f + 0x90a + 0x80a + 0xf0f,
	}, got)
	assert.InDelta(t, 9e-10, metrics.BitErrorRate(0x90a), 1e-20)
}

// TestRound_MIGOnEveryBoard_ValuesOfTheScript: an instance has its own values, and its GPU has the values of the board.
func TestRound_MIGOnEveryBoard_ValuesOfTheScript(t *testing.T) {
	t.Parallel()
	for id, gpm := range map[string]bool{
		"a30": false, "a100-40": false, "a100-80": false, "h100-80": true, "h200-141": true, "b200-180": true,
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			board, err := model.BoardByID(id)
			require.NoError(t, err)
			c := samplingOn(t, id)
			smi(t, c.node, "-i", "0", "-mig", "1")
			c.wear()                               // Ampere changes the mode then
			smi(t, c.node, "-i", "0", "-mig", "1") // Hopper has lost it then
			smi(t, c.node, "mig", "-cgi", "0", "-C")
			c.must("open")
			first := c.must("round")
			require.Len(t, first.MIGDevices, 1)
			r, seconds := c.scripted(string(first.MIGDevices[0].Facts.UUID))
			onBoard := wanted(&board, seconds)
			for field := range ratios() {
				delete(onBoard, field) // only on the instance
			}
			for _, field := range []metrics.Field{
				metrics.FieldMemoryTotal, metrics.FieldMemoryUsed, metrics.FieldMemoryFree, metrics.FieldMemoryReserved, metrics.FieldBAR1Total,
			} {
				delete(onBoard, field) // depends on the engines of the instance
			}
			for field, value := range r.Values {
				if expected, compared := onBoard[field]; compared {
					assert.InDelta(t, expected, value, tolerance*expected, "%s of the GPU", metrics.Table[field].Help)
				}
			}
			instance := r.MIGDevices[0].Values
			want := ratios()
			for field, value := range instance {
				if expected, compared := want[field]; compared {
					assert.InDelta(t, expected, value, tolerance*expected, "%s of the instance", metrics.Table[field].Help)
				}
			}
			assert.Equal(t, gpm, instance[metrics.FieldSMActive] > 0)
			assert.InDelta(t, 3001*mib, instance[metrics.FieldMemoryUsed], 0)
			assert.InDelta(t, instance[metrics.FieldMemoryTotal],
				instance[metrics.FieldMemoryUsed]+instance[metrics.FieldMemoryFree]+instance[metrics.FieldMemoryReserved], 0)
		})
	}
}
