package metrics_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// measured is a distinct value for each field, in base units.
var measured = map[metrics.Field]float64{
	metrics.FieldClockSM: 1001e6, metrics.FieldClockMemory: 1002e6, metrics.FieldClockVideo: 1004e6, metrics.FieldTemperatureMemory: 71,
	metrics.FieldTemperatureGPU: 61, metrics.FieldPowerUsage: 123.456, metrics.FieldPowerLimit: 350.5, metrics.FieldEnergy: 12.345,
	metrics.FieldPCIeReplays: 21, metrics.FieldUtilization: 0.41, metrics.FieldUtilizationMemory: 0.43, metrics.FieldUtilizationEncoder: 0.11,
	metrics.FieldUtilizationDecoder: 0.13, metrics.FieldViolationPower: 0.1, metrics.FieldViolationThermal: 0.2, metrics.FieldViolationSyncBoost: 0.3,
	metrics.FieldViolationBoardLimit: 0.4, metrics.FieldViolationLowUtilization: 0.5, metrics.FieldViolationReliability: 0.6,
	metrics.FieldMemoryTotal: 1000 << 20, metrics.FieldMemoryUsed: 300 << 20, metrics.FieldMemoryFree: 600 << 20, metrics.FieldMemoryReserved: 100 << 20,
	metrics.FieldECCCorrectedVolatile: 3, metrics.FieldECCUncorrectedVolatile: 5, metrics.FieldECCCorrectedAggregate: 103,
	metrics.FieldECCUncorrectedAggregate: 105, metrics.FieldRetiredPagesCorrected: 107, metrics.FieldRetiredPagesUncorrected: 111,
	metrics.FieldRetiredPagesPending: 1, metrics.FieldNVLinkCRCFlitErrors: 25, metrics.FieldNVLinkCRCDataErrors: 27, metrics.FieldNVLinkReplays: 33,
	metrics.FieldNVLinkRecoveries: 37, metrics.FieldNVLinkTransmitRate: 4e9, metrics.FieldNVLinkReceiveRate: 5e9, metrics.FieldNVLink0TransmitRate: 4e8,
	metrics.FieldNVLink0ReceiveRate: 3e8, metrics.FieldVGPULicense: 1, metrics.FieldRowsRemappedUncorrectable: 115,
	metrics.FieldRowsRemappedCorrectable: 113, metrics.FieldRowRemapFailure: 1, metrics.FieldRowRemapPending: 0,
	metrics.FieldGraphicsActive: 0.810001, metrics.FieldSMActive: 0.73, metrics.FieldSMOccupancy: 0.67, metrics.FieldTensorActive: 0.59,
	metrics.FieldDRAMActive: 0.53, metrics.FieldFP64Active: 0.47, metrics.FieldFP32Active: 0.44, metrics.FieldFP16Active: 0.37,
	metrics.FieldIntegerActive: 0.31, metrics.FieldPCIeTransmitRate: 3_000_000, metrics.FieldPCIeReceiveRate: 7_000_000,
	metrics.FieldFanSpeed: 0.38, metrics.FieldPerformanceState: 2, metrics.FieldPCIeLinkGeneration: 4, metrics.FieldPCIeLinkWidth: 8,
	metrics.FieldBAR1Used: 64 << 20, metrics.FieldBAR1Total: 256 << 20, metrics.FieldClockEventReasons: 0x24,
}

// shown is the expected value of each DCGM field, in DCGM's units.
var shown = map[string]float64{
	"DEV_SM_CLOCK": 1001, "DEV_MEM_CLOCK": 1002, "DEV_VIDEO_CLOCK": 1004, "DEV_MEMORY_TEMP": 71, "DEV_GPU_TEMP": 61, "DEV_POWER_USAGE": 123.456,
	"DEV_POWER_MGMT_LIMIT": 350.5, "DEV_TOTAL_ENERGY_CONSUMPTION": 12345, "DEV_PCIE_REPLAY_COUNTER": 21, "DEV_GPU_UTIL": 41,
	"DEV_MEM_COPY_UTIL": 43, "DEV_ENC_UTIL": 11, "DEV_DEC_UTIL": 13, "DEV_XID_ERRORS": 0, "DEV_POWER_VIOLATION": 1e8, "DEV_THERMAL_VIOLATION": 2e8,
	"DEV_SYNC_BOOST_VIOLATION": 3e8, "DEV_BOARD_LIMIT_VIOLATION": 4e8, "DEV_LOW_UTIL_VIOLATION": 5e8, "DEV_RELIABILITY_VIOLATION": 6e8,
	"DEV_FB_TOTAL": 1000, "DEV_FB_FREE": 600, "DEV_FB_USED": 300, "DEV_FB_RESERVED": 100, "DEV_FB_USED_PERCENT": 0.333333,
	"DEV_ECC_SBE_VOL_TOTAL": 3, "DEV_ECC_DBE_VOL_TOTAL": 5, "DEV_ECC_SBE_AGG_TOTAL": 103, "DEV_ECC_DBE_AGG_TOTAL": 105,
	"DEV_RETIRED_SBE": 107, "DEV_RETIRED_DBE": 111, "DEV_RETIRED_PENDING": 1, "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 25,
	"DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": 27, "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 33, "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 37,
	"DEV_NVLINK_BANDWIDTH_TOTAL": 9000, "DEV_NVLINK_BANDWIDTH_L0": 700, "DEV_VGPU_LICENSE_STATUS": 1,
	"DEV_UNCORRECTABLE_REMAPPED_ROWS": 115, "DEV_CORRECTABLE_REMAPPED_ROWS": 113, "DEV_ROW_REMAP_FAILURE": 1, "DEV_ROW_REMAP_PENDING": 0,
	"PROF_GR_ENGINE_ACTIVE": 0.810001, "PROF_SM_ACTIVE": 0.73, "PROF_SM_OCCUPANCY": 0.67, "PROF_PIPE_TENSOR_ACTIVE": 0.59, "PROF_DRAM_ACTIVE": 0.53,
	"PROF_PIPE_FP64_ACTIVE": 0.47, "PROF_PIPE_FP32_ACTIVE": 0.44, "PROF_PIPE_FP16_ACTIVE": 0.37, "PROF_PIPE_INT_ACTIVE": 0.31,
	"PROF_PCIE_TX_BYTES": 3_000_000, "PROF_PCIE_RX_BYTES": 7_000_000, "DEV_PCIE_TX_THROUGHPUT": 3000, "DEV_PCIE_RX_THROUGHPUT": 7000,
	"PROF_NVLINK_TX_BYTES": 4e9, "PROF_NVLINK_RX_BYTES": 5e9, "DEV_FAN_SPEED": 38, "DEV_PSTATE": 2, "DEV_PCIE_LINK_GEN": 4, "DEV_PCIE_LINK_WIDTH": 8,
	"DEV_BAR1_USED": 64, "DEV_BAR1_TOTAL": 256, "DEV_CLOCK_THROTTLE_REASONS": 0x24, "DEV_CLOCKS_EVENT_REASONS": 0x24,
}

// withLinks adds distinct values for each NVLink.
func withLinks() (map[metrics.Field]float64, map[string]float64) {
	fields, fieldsShown := maps.Clone(measured), maps.Clone(shown)
	fields[metrics.FieldNVLinkTransmitted], fields[metrics.FieldNVLinkReceived] = 12e9, 13e9
	fieldsShown["DEV_NVLINK_COUNT_TX_BYTES"], fieldsShown["DEV_NVLINK_COUNT_RX_BYTES"] = 12e9, 13e9
	fieldsShown["DEV_NVLINK_TX_BANDWIDTH_TOTAL"], fieldsShown["DEV_NVLINK_RX_BANDWIDTH_TOTAL"] = 4000, 5000
	for i, name := range strings.Fields("TX_PACKETS RX_PACKETS RX_MALFORMED_PACKET_ERRORS RX_BUFFER_OVERRUN_ERRORS RX_ERRORS RX_REMOTE_ERRORS " +
		"RX_GENERAL_ERRORS LOCAL_LINK_INTEGRITY_ERRORS TX_DISCARDS LINK_RECOVERY_SUCCESSFUL_EVENTS LINK_RECOVERY_FAILED_EVENTS LINK_RECOVERY_EVENTS " +
		"EFFECTIVE_ERRORS RX_SYMBOL_ERRORS") {
		fields[metrics.FieldNVLinkPacketsTransmitted+metrics.Field(i)] = float64(200 + i)
		fieldsShown["DEV_NVLINK_COUNT_"+name] = float64(200 + i)
	}
	fields[metrics.FieldNVLinkEffectiveBER], fields[metrics.FieldNVLinkSymbolBER] = 0xf0f, 0x108
	fieldsShown["DEV_NVLINK_COUNT_EFFECTIVE_BER"], fieldsShown["DEV_NVLINK_COUNT_EFFECTIVE_BER_FLOAT"] = 0xf0f, 15e-15
	fieldsShown["DEV_NVLINK_COUNT_SYMBOL_BER"], fieldsShown["DEV_NVLINK_COUNT_SYMBOL_BER_FLOAT"] = 0x108, 1e-8
	for i := range metrics.FECHistories {
		fields[metrics.FieldNVLinkFECHistory+metrics.Field(i)] = float64(300 + i)
		fieldsShown[fmt.Sprintf("DEV_NVLINK_COUNT_FEC_HISTORY_%d", i)] = float64(300 + i)
	}
	for link := range metrics.NVLinks {
		tx, rx := 400+float64(link), 300-float64(2*link)
		fields[metrics.FieldNVLink0TransmitRate.OfNVLink(link)], fields[metrics.FieldNVLink0ReceiveRate.OfNVLink(link)] = tx*1e6, rx*1e6
		for name, value := range map[string]float64{"": tx + rx, "TX_": tx, "RX_": rx} {
			fieldsShown[fmt.Sprintf("DEV_NVLINK_%sBANDWIDTH_L%d", name, link)] = value
		}
	}
	return fields, fieldsShown
}

// everyField is a CSV with all supported fields.
func everyField(t *testing.T) *metrics.Selection {
	t.Helper()
	var text strings.Builder
	for _, f := range metrics.DCGMFields() {
		text.WriteString(f.Name + ", " + f.Kind.String() + ", help\n")
	}
	chosen, problems, err := metrics.ParseCSV([]byte(text.String()))
	require.NoError(t, err)
	require.Empty(t, problems)
	return chosen
}

// TestDCGM_EveryField_ValueAndUnitOfDCGM: on GPUs and on MIG devices, including the fields that only a CSV selects.
func TestDCGM_EveryField_ValueAndUnitOfDCGM(t *testing.T) {
	measured, shown := withLinks()
	whole := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	partitioned := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	partitioned.Identity.MIGMode = true
	partitioned.MIGDevices = []*metrics.MIGDevice{{UUID: migID(1), Profile: "1g.10gb", GPUInstance: 7}}
	for _, values := range []*metrics.Values{&whole.Values, &partitioned.MIGDevices[0].Values, &partitioned.Values} {
		*values = metrics.Values{}
		for field, value := range measured {
			values.Set(field, value)
		}
	}
	onWhole, onPartitioned := parsed(t, join(whole).AppendDCGM(nil, everyField(t))), parsed(t, join(partitioned).AppendDCGM(nil, everyField(t)))
	left := maps.Clone(shown)
	for _, f := range metrics.DCGMFields() {
		name, plain := strings.CutPrefix(f.Name, "DCGM_FI_")
		if !plain {
			continue // counts of events, with tests of their own
		}
		require.Contains(t, shown, name)
		assert.InDelta(t, shown[name], value(t, onWhole, f.Name), 1e-18+1e-9*min(1, shown[name]), f.Name)
		instance := ""
		if f.Instance {
			instance = "7"
		}
		assert.InDelta(t, shown[name], value(t, onPartitioned, f.Name, "GPU_I_ID", instance), 1e-18+1e-9*min(1, shown[name]), "%s in MIG mode", f.Name)
		delete(left, name)
	}
	assert.Empty(t, left, "of no field")
}
