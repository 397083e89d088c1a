package metrics

import "github.com/prism-gpu/prism/pkg/gpu"

// Table contains a row for each field, by its number. MemoryFree has no name, because it follows from the other three.
var Table = withLinks([FieldCount]Row{
	FieldClockSM: {
		GPU:  "prism_gpu_sm_clock_hertz",
		Help: "SM clock.",
		Unit: "hertz", Source: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsClocks},
	},
	FieldClockMemory: {
		GPU:  "prism_gpu_memory_clock_hertz",
		Help: "Memory clock.",
		Unit: "hertz", Source: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsClocks},
	},
	FieldClockGraphics: {
		GPU:  "prism_gpu_graphics_clock_hertz",
		Help: "Graphics clock.",
		Unit: "hertz", Source: SourceNVML, Sets: []string{gpu.MetricsClocks},
	},
	FieldClockVideo: {
		GPU:  "prism_gpu_video_clock_hertz",
		Help: "Clock of the video engines.",
		Unit: "hertz", Source: SourceNVML, Sets: []string{gpu.MetricsClocks},
	},
	FieldTemperatureGPU: {
		GPU:  "prism_gpu_temperature_celsius",
		Help: "Temperature of the GPU.",
		Unit: "celsius", Source: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsPower},
	},
	FieldTemperatureMemory: {
		GPU:  "prism_gpu_memory_temperature_celsius",
		Help: "Temperature of the memory.",
		Unit: "celsius", Source: SourceNVML, Since: Volta, Where: "HBM", Sets: []string{gpu.MetricsBasic, gpu.MetricsPower},
	},
	FieldPowerUsage: {
		GPU:  "prism_gpu_power_usage_watts",
		Help: "Power draw of the board.",
		Unit: "watts", Source: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsPower},
	},
	FieldPowerLimit: {
		GPU:  "prism_gpu_power_limit_watts",
		Help: "Enforced power limit.",
		Unit: "watts", Source: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsPower},
	},
	FieldEnergy: {
		GPU:  "prism_gpu_energy_joules_total",
		Help: "Energy used since the driver was loaded.",
		Unit: "joules", Kind: Counter, Source: SourceNVML, Since: Volta, Sets: []string{gpu.MetricsBasic, gpu.MetricsPower},
	},
	FieldFanSpeed: {
		GPU:  "prism_gpu_fan_speed_ratio",
		Help: "Fan speed, 1 is the highest.",
		Unit: "ratio", Source: SourceNVML, Where: "fans", Sets: []string{gpu.MetricsPower},
	},
	FieldPerformanceState: {
		GPU:    "prism_gpu_performance_state",
		Help:   "Performance state, 0 (fastest) to 15.",
		Source: SourceNVML, Sets: []string{gpu.MetricsClocks},
	},
	FieldPCIeReplays: {
		GPU:  "prism_gpu_pcie_replays_total",
		Help: "Retransmitted PCIe packets.",
		Kind: Counter, Source: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsPCIe},
	},
	FieldPCIeLinkGeneration: {
		GPU:    "prism_gpu_pcie_link_generation",
		Help:   "Current PCIe generation of the link.",
		Source: SourceNVML, Sets: []string{gpu.MetricsPCIe},
	},
	FieldPCIeLinkWidth: {
		GPU:    "prism_gpu_pcie_link_lanes",
		Help:   "Number of PCIe lanes that the link uses.",
		Source: SourceNVML, Sets: []string{gpu.MetricsPCIe},
	},
	FieldUtilization: {
		GPU: "prism_gpu_utilization_ratio", MIG: "prism_mig_utilization_ratio",
		Help: "Ratio of time in which work ran on the device.",
		Unit: "ratio", Source: SourceNVML, SourceOnMIG: SourceGPM, Sets: []string{gpu.MetricsBasic, gpu.MetricsUtilization},
	},
	FieldUtilizationMemory: {
		GPU:  "prism_gpu_memory_utilization_ratio",
		Help: "Ratio of time in which the memory was read or written; not the ratio of memory in use.",
		Unit: "ratio", Source: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsUtilization},
	},
	FieldUtilizationEncoder: {
		GPU: "prism_gpu_encoder_utilization_ratio", MIG: "prism_mig_encoder_utilization_ratio",
		Help: "Utilization of the video encoders.",
		Unit: "ratio", Source: SourceNVML, SourceOnMIG: SourceGPM, Sets: []string{gpu.MetricsBasic, gpu.MetricsUtilization},
	},
	FieldUtilizationDecoder: {
		GPU: "prism_gpu_decoder_utilization_ratio", MIG: "prism_mig_decoder_utilization_ratio",
		Help: "Utilization of the video decoders.",
		Unit: "ratio", Source: SourceNVML, SourceOnMIG: SourceGPM, Sets: []string{gpu.MetricsBasic, gpu.MetricsUtilization},
	},
	FieldUtilizationJPEG: {
		GPU: "prism_gpu_jpeg_utilization_ratio", MIG: "prism_mig_jpeg_utilization_ratio",
		Help: "Utilization of the JPEG decoders.",
		Unit: "ratio", Source: SourceNVML, SourceOnMIG: SourceGPM, Since: Turing, Sets: []string{gpu.MetricsUtilization},
	},
	FieldUtilizationOFA: {
		GPU: "prism_gpu_ofa_utilization_ratio", MIG: "prism_mig_ofa_utilization_ratio",
		Help: "Utilization of the optical flow accelerators.",
		Unit: "ratio", Source: SourceNVML, SourceOnMIG: SourceGPM, Since: Turing, Sets: []string{gpu.MetricsUtilization},
	},
	FieldMemoryTotal: {
		GPU: "prism_gpu_memory_total_bytes", MIG: "prism_mig_memory_total_bytes",
		Help: "Memory of the device.",
		Unit: "bytes", Source: SourceNVML, SourceOnMIG: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsMemory},
	},
	FieldMemoryUsed: {
		GPU: "prism_gpu_memory_used_bytes", MIG: "prism_mig_memory_used_bytes",
		Help: "Memory in use, without reserved memory.",
		Unit: "bytes", Source: SourceNVML, SourceOnMIG: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsMemory},
	},
	FieldMemoryFree: {
		Help: "Memory that is free.",
		Unit: "bytes", Source: SourceNVML, SourceOnMIG: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsMemory},
	},
	FieldMemoryReserved: {
		GPU: "prism_gpu_memory_reserved_bytes", MIG: "prism_mig_memory_reserved_bytes",
		Help: "Memory reserved by driver and firmware.",
		Unit: "bytes", Source: SourceNVML, SourceOnMIG: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsMemory},
	},
	FieldBAR1Used: {
		GPU:  "prism_gpu_bar1_memory_used_bytes",
		Help: "BAR1 memory in use, for all MIG devices together.",
		Unit: "bytes", Source: SourceNVML, Sets: []string{gpu.MetricsMemory},
	},
	FieldBAR1Total: {
		GPU:  "prism_gpu_bar1_memory_total_bytes",
		Help: "BAR1 memory of the device.",
		Unit: "bytes", Source: SourceNVML, Sets: []string{gpu.MetricsMemory},
	},
	FieldNVLinkTransmitted: {
		GPU:  "prism_gpu_nvlink_transmitted_bytes_total",
		Help: "Data sent over all NVLinks.",
		Unit: "bytes", Kind: Counter, Source: SourceNVML, Where: "NVLink", Sets: []string{gpu.MetricsBasic, gpu.MetricsNVLink},
	},
	FieldNVLinkReceived: {
		GPU:  "prism_gpu_nvlink_received_bytes_total",
		Help: "Data received over all NVLinks.",
		Unit: "bytes", Kind: Counter, Source: SourceNVML, Where: "NVLink", Sets: []string{gpu.MetricsBasic, gpu.MetricsNVLink},
	},
	FieldNVLinkCRCFlitErrors: {
		GPU:  "prism_gpu_nvlink_crc_flit_errors_total",
		Help: "CRC errors of NVLink flow control.",
		Kind: Counter, Source: SourceNVML, Until: Ampere, Where: "NVLink", Sets: []string{gpu.MetricsNVLink},
	},
	FieldNVLinkCRCDataErrors: {
		GPU:  "prism_gpu_nvlink_crc_data_errors_total",
		Help: "CRC errors of NVLink data.",
		Kind: Counter, Source: SourceNVML, Until: Ampere, Where: "NVLink", Sets: []string{gpu.MetricsNVLink},
	},
	FieldNVLinkReplays: {
		GPU:  "prism_gpu_nvlink_replays_total",
		Help: "Retransmitted NVLink packets.",
		Kind: Counter, Source: SourceNVML, Where: "NVLink", Sets: []string{gpu.MetricsNVLink},
	},
	FieldNVLinkRecoveries: {
		GPU:  "prism_gpu_nvlink_recoveries_total",
		Help: "Recoveries of NVLinks from errors.",
		Kind: Counter, Source: SourceNVML, Where: "NVLink", Sets: []string{gpu.MetricsNVLink},
	},
	FieldVGPULicense: {
		GPU:    "prism_gpu_vgpu_licensed",
		Help:   "Whether the guest holds a vGPU license (1) or not (0).",
		Source: SourceNVML, Where: "a vGPU", Sets: []string{gpu.MetricsBasic},
	},
	FieldRowsRemappedCorrectable: {
		GPU:  "prism_gpu_rows_remapped_correctable_total",
		Help: "Memory rows remapped because of correctable errors.",
		Kind: Counter, Source: SourceNVML, Since: Ampere, Where: "ECC", Sets: []string{gpu.MetricsBasic, gpu.MetricsECC},
	},
	FieldRowsRemappedUncorrectable: {
		GPU:  "prism_gpu_rows_remapped_uncorrectable_total",
		Help: "Memory rows remapped because of uncorrectable errors.",
		Kind: Counter, Source: SourceNVML, Since: Ampere, Where: "ECC", Sets: []string{gpu.MetricsBasic, gpu.MetricsECC},
	},
	FieldRowRemapPending: {
		GPU:    "prism_gpu_row_remap_pending",
		Help:   "Whether a remapping waits for a GPU reset (1) or not (0).",
		Source: SourceNVML, Since: Ampere, Where: "ECC", Sets: []string{gpu.MetricsBasic, gpu.MetricsECC},
	},
	FieldRowRemapFailure: {
		GPU:    "prism_gpu_row_remap_failure",
		Help:   "Whether a remapping failed (1) or not (0).",
		Source: SourceNVML, Since: Ampere, Where: "ECC", Sets: []string{gpu.MetricsBasic, gpu.MetricsECC},
	},
	FieldECCCorrectedVolatile: {
		GPU:  "prism_gpu_ecc_corrected_errors_total",
		Help: "Corrected ECC errors since the driver was loaded.",
		Kind: Counter, Source: SourceNVML, Where: "ECC", Sets: []string{gpu.MetricsBasic, gpu.MetricsECC},
	},
	FieldECCUncorrectedVolatile: {
		GPU:  "prism_gpu_ecc_uncorrected_errors_total",
		Help: "Uncorrected ECC errors since the driver was loaded.",
		Kind: Counter, Source: SourceNVML, Where: "ECC", Sets: []string{gpu.MetricsBasic, gpu.MetricsECC},
	},
	FieldECCCorrectedAggregate: {
		GPU:  "prism_gpu_ecc_corrected_lifetime_errors_total",
		Help: "Corrected ECC errors over the lifetime of the GPU.",
		Kind: Counter, Source: SourceNVML, Where: "ECC", Sets: []string{gpu.MetricsECC},
	},
	FieldECCUncorrectedAggregate: {
		GPU:  "prism_gpu_ecc_uncorrected_lifetime_errors_total",
		Help: "Uncorrected ECC errors over the lifetime of the GPU.",
		Kind: Counter, Source: SourceNVML, Where: "ECC", Sets: []string{gpu.MetricsECC},
	},
	FieldRetiredPagesCorrected: {
		GPU:  "prism_gpu_retired_pages_corrected_total",
		Help: "Memory pages retired because of corrected errors.",
		Kind: Counter, Source: SourceNVML, Until: Turing, Where: "ECC", Sets: []string{gpu.MetricsECC},
	},
	FieldRetiredPagesUncorrected: {
		GPU:  "prism_gpu_retired_pages_uncorrected_total",
		Help: "Memory pages retired because of uncorrected errors.",
		Kind: Counter, Source: SourceNVML, Until: Turing, Where: "ECC", Sets: []string{gpu.MetricsECC},
	},
	FieldRetiredPagesPending: {
		GPU:    "prism_gpu_retired_pages_pending",
		Help:   "Whether a page waits for a reboot to be retired (1) or not (0).",
		Source: SourceNVML, Until: Turing, Where: "ECC", Sets: []string{gpu.MetricsECC},
	},
	FieldViolationPower: {
		GPU:  "prism_gpu_power_violation_seconds_total",
		Help: "Time in which clocks were lowered because of the power limit.",
		Unit: "seconds", Kind: Counter, Source: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsThrottle},
	},
	FieldViolationThermal: {
		GPU:  "prism_gpu_thermal_violation_seconds_total",
		Help: "Time in which clocks were lowered because of temperature.",
		Unit: "seconds", Kind: Counter, Source: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsThrottle},
	},
	FieldViolationSyncBoost: {
		GPU:  "prism_gpu_sync_boost_violation_seconds_total",
		Help: "Time in which clocks were lowered because of sync boost.",
		Unit: "seconds", Kind: Counter, Source: SourceNVML, Sets: []string{gpu.MetricsThrottle},
	},
	FieldViolationBoardLimit: {
		GPU:  "prism_gpu_board_limit_violation_seconds_total",
		Help: "Time in which clocks were lowered because of the board limit.",
		Unit: "seconds", Kind: Counter, Source: SourceNVML, Sets: []string{gpu.MetricsThrottle},
	},
	FieldViolationLowUtilization: {
		GPU:  "prism_gpu_low_utilization_violation_seconds_total",
		Help: "Time in which clocks were lowered because of low utilization.",
		Unit: "seconds", Kind: Counter, Source: SourceNVML, Sets: []string{gpu.MetricsThrottle},
	},
	FieldViolationReliability: {
		GPU:  "prism_gpu_reliability_violation_seconds_total",
		Help: "Time in which clocks were lowered because of reliability.",
		Unit: "seconds", Kind: Counter, Source: SourceNVML, Sets: []string{gpu.MetricsThrottle},
	},
	FieldClockEventReasons: {
		GPU:    "prism_gpu_clock_event_reasons",
		Help:   "Why clocks are lowered now, as NVML's bit mask.",
		Source: SourceNVML, Sets: []string{gpu.MetricsBasic, gpu.MetricsThrottle},
	},
	FieldRecoveryAction: {
		GPU:    "prism_gpu_recovery_action",
		Help:   "Recovery action that the GPU needs: 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset.",
		Source: SourceNVML, Since: Ampere, Sets: []string{gpu.MetricsBasic},
	},
	FieldGraphicsActive: {
		GPU:  "prism_gpu_graphics_active_ratio",
		Help: "Ratio of time in which the graphics or compute engine was active.",
		Unit: "ratio", Source: SourceGPM, SourceOnMIG: SourceGPM, Since: Hopper, Sets: []string{gpu.MetricsBasic, gpu.MetricsUtilization, gpu.MetricsPipelines},
	},
	FieldSMActive: {
		GPU: "prism_gpu_sm_active_ratio", MIG: "prism_mig_sm_active_ratio",
		Help: "Ratio of time in which an SM had a warp (mean over all SMs).",
		Unit: "ratio", Source: SourceGPM, SourceOnMIG: SourceGPM, Since: Hopper, Sets: []string{gpu.MetricsBasic, gpu.MetricsUtilization, gpu.MetricsPipelines},
	},
	FieldSMOccupancy: {
		GPU: "prism_gpu_sm_occupancy_ratio", MIG: "prism_mig_sm_occupancy_ratio",
		Help: "Ratio of resident warps to possible warps.",
		Unit: "ratio", Source: SourceGPM, SourceOnMIG: SourceGPM, Since: Hopper, Sets: []string{gpu.MetricsBasic, gpu.MetricsUtilization, gpu.MetricsPipelines},
	},
	FieldTensorActive: {
		GPU: "prism_gpu_tensor_active_ratio", MIG: "prism_mig_tensor_active_ratio",
		Help: "Ratio of cycles in which tensor pipes were active.",
		Unit: "ratio", Source: SourceGPM, SourceOnMIG: SourceGPM, Since: Hopper, Sets: []string{gpu.MetricsBasic, gpu.MetricsPipelines},
	},
	FieldDRAMActive: {
		GPU: "prism_gpu_dram_active_ratio", MIG: "prism_mig_dram_active_ratio",
		Help: "Ratio of cycles in which the memory interface moved data.",
		Unit: "ratio", Source: SourceGPM, SourceOnMIG: SourceGPM, Since: Hopper, Sets: []string{gpu.MetricsBasic, gpu.MetricsUtilization, gpu.MetricsPipelines},
	},
	FieldFP64Active: {
		GPU: "prism_gpu_fp64_active_ratio", MIG: "prism_mig_fp64_active_ratio",
		Help: "Ratio of cycles in which the FP64 pipe was active.",
		Unit: "ratio", Source: SourceGPM, SourceOnMIG: SourceGPM, Since: Hopper, Sets: []string{gpu.MetricsPipelines},
	},
	FieldFP32Active: {
		GPU: "prism_gpu_fp32_active_ratio", MIG: "prism_mig_fp32_active_ratio",
		Help: "Ratio of cycles in which the FP32 pipe was active.",
		Unit: "ratio", Source: SourceGPM, SourceOnMIG: SourceGPM, Since: Hopper, Sets: []string{gpu.MetricsPipelines},
	},
	FieldFP16Active: {
		GPU: "prism_gpu_fp16_active_ratio", MIG: "prism_mig_fp16_active_ratio",
		Help: "Ratio of cycles in which the FP16 pipe was active.",
		Unit: "ratio", Source: SourceGPM, SourceOnMIG: SourceGPM, Since: Hopper, Sets: []string{gpu.MetricsPipelines},
	},
	FieldIntegerActive: {
		GPU: "prism_gpu_integer_active_ratio", MIG: "prism_mig_integer_active_ratio",
		Help: "Ratio of cycles in which the integer pipe was active.",
		Unit: "ratio", Source: SourceGPM, SourceOnMIG: SourceGPM, Since: Hopper, Sets: []string{gpu.MetricsPipelines},
	},
	FieldPCIeTransmitRate: {
		GPU: "prism_gpu_pcie_transmit_bytes_per_second", MIG: "prism_mig_pcie_transmit_bytes_per_second",
		Help: "Data sent over PCIe per second.",
		Unit: "bytes_per_second", Source: SourceGPM, SourceOnMIG: SourceGPM, Since: Hopper, Sets: []string{gpu.MetricsBasic, gpu.MetricsPCIe},
	},
	FieldPCIeReceiveRate: {
		GPU: "prism_gpu_pcie_receive_bytes_per_second", MIG: "prism_mig_pcie_receive_bytes_per_second",
		Help: "Data received over PCIe per second.",
		Unit: "bytes_per_second", Source: SourceGPM, SourceOnMIG: SourceGPM, Since: Hopper, Sets: []string{gpu.MetricsBasic, gpu.MetricsPCIe},
	},
	FieldNVLinkTransmitRate: {
		GPU:  "prism_gpu_nvlink_transmit_bytes_per_second",
		Help: "Data sent over all NVLinks per second.",
		Unit: "bytes_per_second", Source: SourceNVML, Where: "NVLink", Sets: []string{gpu.MetricsBasic, gpu.MetricsNVLink},
	},
	FieldNVLinkReceiveRate: {
		GPU:  "prism_gpu_nvlink_receive_bytes_per_second",
		Help: "Data received over all NVLinks per second.",
		Unit: "bytes_per_second", Source: SourceNVML, Where: "NVLink", Sets: []string{gpu.MetricsBasic, gpu.MetricsNVLink},
	},
})
