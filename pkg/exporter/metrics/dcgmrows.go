package metrics

import "slices"

// dcgmTable lists the fields of DCGM for which NVML or GPM provides a value. The first ones are dcgm-exporter's default counters, including
// the lines that are commented out there; only a CSV can select the others.
var dcgmTable = slices.Concat(dcgmNamed, linkRows())

// dcgmNamed are the fields that are not numbered.
var dcgmNamed = []dcgmRow{
	{
		name: "DCGM_FI_DEV_SM_CLOCK", of: scaled(FieldClockSM, 1e-6, 0),
		help: "SM clock in MHz.",
	},
	{
		name: "DCGM_FI_DEV_MEM_CLOCK", of: scaled(FieldClockMemory, 1e-6, 0),
		help: "Memory clock in MHz.",
	},
	{
		name: "DCGM_FI_DEV_MEMORY_TEMP", of: scaled(FieldTemperatureMemory, 1, 0),
		help: "Temperature of the memory in degrees Celsius.",
	},
	{
		name: "DCGM_FI_DEV_GPU_TEMP", of: scaled(FieldTemperatureGPU, 1, 0),
		help: "Temperature of the GPU in degrees Celsius.",
	},
	{
		name: "DCGM_FI_DEV_POWER_USAGE", of: scaled(FieldPowerUsage, 1, 3),
		help: "Power draw in W.",
	},
	{
		name: "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", kind: Counter, of: scaled(FieldEnergy, 1e3, 0),
		help: "Energy in mJ since the driver was loaded.",
	},
	{
		name: "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", kind: Counter, of: scaled(FieldPCIeReplays, 1, 0),
		help: "Retransmitted PCIe packets.",
	},
	{
		name: "DCGM_FI_DEV_GPU_UTIL", instance: true, of: scaled(FieldUtilization, 100, 0),
		help: "Utilization of the device in percent; for a MIG device, as GPM reports it.",
	},
	{
		name: "DCGM_FI_DEV_MEM_COPY_UTIL", instance: true, of: scaled(FieldUtilizationMemory, 100, 0),
		help: "Time in which the memory was read or written, in percent.",
	},
	{
		name: "DCGM_FI_DEV_ENC_UTIL", instance: true, of: scaled(FieldUtilizationEncoder, 100, 0),
		help: "Utilization of the encoders in percent.",
	},
	{
		name: "DCGM_FI_DEV_DEC_UTIL", instance: true, of: scaled(FieldUtilizationDecoder, 100, 0),
		help: "Utilization of the decoders in percent.",
	},
	{
		name: "DCGM_FI_DEV_XID_ERRORS",
		help: "Code of the last XID error, 0 for none since the exporter started.",
	},
	{
		name: "DCGM_EXP_XID_ERRORS_COUNT", counted: (*board).recentXIDs,
		help: "XID errors of the last 5 minutes by code, with label xid.",
	},
	{
		name: "DCGM_EXP_CLOCK_EVENTS_COUNT", counted: (*board).recentClockEvents, of: scaled(FieldClockEventReasons, 1, 0),
		help: "Samples of the last 5 minutes in which clocks were lowered, by reason, with label clock_event.",
	},
	{
		name: "DCGM_FI_DEV_POWER_VIOLATION", kind: Counter, of: scaled(FieldViolationPower, 1e9, 0),
		help: "Time in ns in which clocks were lowered because of the power limit.",
	},
	{
		name: "DCGM_FI_DEV_THERMAL_VIOLATION", kind: Counter, of: scaled(FieldViolationThermal, 1e9, 0),
		help: "Time in ns in which clocks were lowered because of temperature.",
	},
	{
		name: "DCGM_FI_DEV_SYNC_BOOST_VIOLATION", kind: Counter, of: scaled(FieldViolationSyncBoost, 1e9, 0),
		help: "Time in ns in which clocks were lowered because of sync boost.",
	},
	{
		name: "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", kind: Counter, of: scaled(FieldViolationBoardLimit, 1e9, 0),
		help: "Time in ns in which clocks were lowered because of the board limit.",
	},
	{
		name: "DCGM_FI_DEV_LOW_UTIL_VIOLATION", kind: Counter, of: scaled(FieldViolationLowUtilization, 1e9, 0),
		help: "Time in ns in which clocks were lowered because of low utilization.",
	},
	{
		name: "DCGM_FI_DEV_RELIABILITY_VIOLATION", kind: Counter, of: scaled(FieldViolationReliability, 1e9, 0),
		help: "Time in ns in which clocks were lowered because of reliability.",
	},
	{
		name: "DCGM_FI_DEV_FB_FREE", instance: true, of: scaled(FieldMemoryFree, 1.0/(1<<20), 0),
		help: "Free memory in MiB.",
	},
	{
		name: "DCGM_FI_DEV_FB_USED", instance: true, of: scaled(FieldMemoryUsed, 1.0/(1<<20), 0),
		help: "Memory in use in MiB, without reserved memory.",
	},
	{
		name: "DCGM_FI_DEV_FB_RESERVED", instance: true, of: scaled(FieldMemoryReserved, 1.0/(1<<20), 0),
		help: "Reserved memory in MiB.",
	},
	{
		name: "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", kind: Counter, of: scaled(FieldECCCorrectedVolatile, 1, 0),
		help: "Corrected ECC errors since the driver was loaded.",
	},
	{
		name: "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", kind: Counter, of: scaled(FieldECCUncorrectedVolatile, 1, 0),
		help: "Uncorrected ECC errors since the driver was loaded.",
	},
	{
		name: "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", kind: Counter, of: scaled(FieldECCCorrectedAggregate, 1, 0),
		help: "Corrected ECC errors over the lifetime of the GPU.",
	},
	{
		name: "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", kind: Counter, of: scaled(FieldECCUncorrectedAggregate, 1, 0),
		help: "Uncorrected ECC errors over the lifetime of the GPU.",
	},
	{
		name: "DCGM_FI_DEV_RETIRED_SBE", kind: Counter, of: scaled(FieldRetiredPagesCorrected, 1, 0),
		help: "Pages retired because of corrected errors.",
	},
	{
		name: "DCGM_FI_DEV_RETIRED_DBE", kind: Counter, of: scaled(FieldRetiredPagesUncorrected, 1, 0),
		help: "Pages retired because of uncorrected errors.",
	},
	{
		name: "DCGM_FI_DEV_RETIRED_PENDING", kind: Counter, of: scaled(FieldRetiredPagesPending, 1, 0),
		help: "Whether a page waits to be retired (1) or not (0).",
	},
	{
		name: "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", kind: Counter, of: scaled(FieldNVLinkCRCFlitErrors, 1, 0),
		help: "CRC errors of NVLink flow control.",
	},
	{
		name: "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", kind: Counter, of: scaled(FieldNVLinkCRCDataErrors, 1, 0),
		help: "CRC errors of NVLink data.",
	},
	{
		name: "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", kind: Counter, of: scaled(FieldNVLinkReplays, 1, 0),
		help: "Retransmitted NVLink packets.",
	},
	{
		name: "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", kind: Counter, of: scaled(FieldNVLinkRecoveries, 1, 0),
		help: "Recoveries of NVLinks from errors.",
	},
	{
		name: "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", kind: Counter, of: sum(1e-6, FieldNVLinkTransmitRate, FieldNVLinkReceiveRate),
		help: "Data over all NVLinks in MB/s, averaged over the last interval, although the type is counter.",
	},
	{
		name: "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0", kind: Counter, of: sum(1e-6, FieldNVLink0TransmitRate, FieldNVLink0ReceiveRate),
		help: "Data over the first NVLink in MB/s, averaged over the last interval, although the type is counter.",
	},
	{
		name: "DCGM_FI_DEV_VGPU_LICENSE_STATUS", of: scaled(FieldVGPULicense, 1, 0),
		help: "Whether a vGPU license is held (1) or not (0).",
	},
	{
		name: "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", kind: Counter, of: scaled(FieldRowsRemappedUncorrectable, 1, 0),
		help: "Memory rows remapped for uncorrectable errors.",
	},
	{
		name: "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", kind: Counter, of: scaled(FieldRowsRemappedCorrectable, 1, 0),
		help: "Memory rows remapped for correctable errors.",
	},
	{
		name: "DCGM_FI_DEV_ROW_REMAP_FAILURE", of: scaled(FieldRowRemapFailure, 1, 0),
		help: "Whether a remapping failed (1) or not (0).",
	},
	{
		name: "DCGM_FI_PROF_GR_ENGINE_ACTIVE", instance: true, of: scaled(FieldGraphicsActive, 1, 6),
		help: "Ratio of time in which the graphics or compute engine was active.",
	},
	{
		name: "DCGM_FI_PROF_SM_ACTIVE", instance: true, of: scaled(FieldSMActive, 1, 6),
		help: "Ratio of time in which an SM had a warp (mean over all SMs).",
	},
	{
		name: "DCGM_FI_PROF_SM_OCCUPANCY", instance: true, of: scaled(FieldSMOccupancy, 1, 6),
		help: "Ratio of resident warps to possible warps.",
	},
	{
		name: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", instance: true, of: scaled(FieldTensorActive, 1, 6),
		help: "Ratio of cycles in which tensor pipes were active.",
	},
	{
		name: "DCGM_FI_PROF_DRAM_ACTIVE", instance: true, of: scaled(FieldDRAMActive, 1, 6),
		help: "Ratio of cycles in which the memory interface moved data.",
	},
	{
		name: "DCGM_FI_PROF_PIPE_FP64_ACTIVE", instance: true, of: scaled(FieldFP64Active, 1, 6),
		help: "Ratio of cycles in which the FP64 pipe was active.",
	},
	{
		name: "DCGM_FI_PROF_PIPE_FP32_ACTIVE", instance: true, of: scaled(FieldFP32Active, 1, 6),
		help: "Ratio of cycles in which the FP32 pipe was active.",
	},
	{
		name: "DCGM_FI_PROF_PIPE_FP16_ACTIVE", instance: true, of: scaled(FieldFP16Active, 1, 6),
		help: "Ratio of cycles in which the FP16 pipe was active.",
	},
	{
		name: "DCGM_FI_PROF_PCIE_TX_BYTES", instance: true, of: scaled(FieldPCIeTransmitRate, 1, 0),
		help: "Data sent over PCIe in bytes per second.",
	},
	{
		name: "DCGM_FI_PROF_PCIE_RX_BYTES", instance: true, of: scaled(FieldPCIeReceiveRate, 1, 0),
		help: "Data received over PCIe in bytes per second.",
	},
	{
		name: "DCGM_FI_DEV_PCIE_TX_THROUGHPUT", kind: Counter, instance: true, extra: true, of: scaled(FieldPCIeTransmitRate, 1e-3, 0),
		help: "Data sent over PCIe in kB per second.",
	},
	{
		name: "DCGM_FI_DEV_PCIE_RX_THROUGHPUT", kind: Counter, instance: true, extra: true, of: scaled(FieldPCIeReceiveRate, 1e-3, 0),
		help: "Data received over PCIe in kB per second.",
	},
	{
		name: "DCGM_FI_DEV_VIDEO_CLOCK", extra: true, of: scaled(FieldClockVideo, 1e-6, 0),
		help: "Clock of the video engines in MHz.",
	},
	{
		name: "DCGM_FI_DEV_POWER_MGMT_LIMIT", extra: true, of: scaled(FieldPowerLimit, 1, 3),
		help: "Enforced power limit in W.",
	},
	{
		name: "DCGM_FI_DEV_FAN_SPEED", extra: true, of: scaled(FieldFanSpeed, 100, 0),
		help: "Fan speed in percent.",
	},
	{
		name: "DCGM_FI_DEV_PSTATE", extra: true, of: scaled(FieldPerformanceState, 1, 0),
		help: "Performance state, 0 (fastest) to 15.",
	},
	{
		name: "DCGM_FI_DEV_PCIE_LINK_GEN", extra: true, of: scaled(FieldPCIeLinkGeneration, 1, 0),
		help: "Current PCIe generation of the link.",
	},
	{
		name: "DCGM_FI_DEV_PCIE_LINK_WIDTH", extra: true, of: scaled(FieldPCIeLinkWidth, 1, 0),
		help: "Number of PCIe lanes that the link uses.",
	},
	{
		name: "DCGM_FI_DEV_FB_TOTAL", instance: true, extra: true, of: scaled(FieldMemoryTotal, 1.0/(1<<20), 0),
		help: "Memory in MiB.",
	},
	{
		name: "DCGM_FI_DEV_FB_USED_PERCENT", instance: true, extra: true, of: usedShare(),
		help: "Ratio of memory in use to memory that is not reserved.",
	},
	{
		name: "DCGM_FI_DEV_BAR1_USED", extra: true, of: scaled(FieldBAR1Used, 1.0/(1<<20), 0),
		help: "BAR1 memory in use in MiB.",
	},
	{
		name: "DCGM_FI_DEV_BAR1_TOTAL", extra: true, of: scaled(FieldBAR1Total, 1.0/(1<<20), 0),
		help: "BAR1 memory in MiB.",
	},
	{
		name: "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", extra: true, of: scaled(FieldClockEventReasons, 1, 0),
		help: "Why clocks are lowered, as NVML's bit mask.",
	},
	{
		name: "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", extra: true, of: scaled(FieldClockEventReasons, 1, 0),
		help: "Why clocks are lowered, as NVML's bit mask.",
	},
	{
		name: "DCGM_FI_DEV_ROW_REMAP_PENDING", extra: true, of: scaled(FieldRowRemapPending, 1, 0),
		help: "Whether a remapping waits for a GPU reset (1) or not (0).",
	},
	{
		name: "DCGM_FI_PROF_PIPE_INT_ACTIVE", instance: true, extra: true, of: scaled(FieldIntegerActive, 1, 6),
		help: "Ratio of cycles in which the integer pipe was active.",
	},
	{
		name: "DCGM_FI_PROF_NVLINK_TX_BYTES", extra: true, of: scaled(FieldNVLinkTransmitRate, 1, 0),
		help: "Data sent over all NVLinks in bytes per second.",
	},
	{
		name: "DCGM_FI_PROF_NVLINK_RX_BYTES", extra: true, of: scaled(FieldNVLinkReceiveRate, 1, 0),
		help: "Data received over all NVLinks in bytes per second.",
	},
}
