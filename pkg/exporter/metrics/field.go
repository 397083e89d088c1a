package metrics

// Field is a measured quantity of a GPU or MIG device; Table defines its name and its level. Values are in base units: bytes, seconds,
// hertz, joules, watts, degrees Celsius, and ratios from 0 to 1.
type Field uint8

// The fields.
const (
	// FieldClockSM: SM clock, hertz.
	FieldClockSM Field = iota
	// FieldClockMemory: Memory clock, hertz.
	FieldClockMemory
	// FieldClockGraphics: Graphics clock, hertz.
	FieldClockGraphics
	// FieldClockVideo: Video clock, hertz.
	FieldClockVideo
	// FieldTemperatureGPU: Temperature of the GPU, degrees Celsius.
	FieldTemperatureGPU
	// FieldTemperatureMemory: Temperature of the memory, degrees Celsius.
	FieldTemperatureMemory
	// FieldPowerUsage: Power, watts.
	FieldPowerUsage
	// FieldPowerLimit: Enforced power limit, watts.
	FieldPowerLimit
	// FieldEnergy: Energy since the driver was loaded, joules, counter.
	FieldEnergy
	// FieldFanSpeed: Fan speed, ratio.
	FieldFanSpeed
	// FieldPerformanceState: Performance state, 0 (fastest) to 15.
	FieldPerformanceState
	// FieldPCIeReplays: PCIe replays, counter.
	FieldPCIeReplays
	// FieldPCIeLinkGeneration: Current PCIe link generation.
	FieldPCIeLinkGeneration
	// FieldPCIeLinkWidth: Current PCIe link width, lanes.
	FieldPCIeLinkWidth
	// FieldUtilization: Ratio of time in which a kernel ran: from NVML for a GPU, GPM's graphics utilization for a MIG device.
	FieldUtilization
	// FieldUtilizationMemory: Ratio of time in which memory was read or written.
	FieldUtilizationMemory
	// FieldUtilizationEncoder: Encoder, ratio.
	FieldUtilizationEncoder
	// FieldUtilizationDecoder: Decoder, ratio.
	FieldUtilizationDecoder
	// FieldUtilizationJPEG: JPEG decoder, ratio.
	FieldUtilizationJPEG
	// FieldUtilizationOFA: Optical flow accelerator, ratio.
	FieldUtilizationOFA
	// FieldMemoryTotal: Memory, bytes.
	FieldMemoryTotal
	// FieldMemoryUsed: Memory in use, without reserved memory, bytes.
	FieldMemoryUsed
	// FieldMemoryFree: Free memory, bytes.
	FieldMemoryFree
	// FieldMemoryReserved: Memory reserved by driver and firmware, bytes.
	FieldMemoryReserved
	// FieldBAR1Used: BAR1 memory in use, bytes.
	FieldBAR1Used
	// FieldBAR1Total: BAR1 memory, bytes.
	FieldBAR1Total
	// FieldNVLinkTransmitted: Data sent over all NVLinks, bytes, counter.
	FieldNVLinkTransmitted
	// FieldNVLinkReceived: Data received over all NVLinks, bytes, counter.
	FieldNVLinkReceived
	// FieldNVLinkCRCFlitErrors: NVLink flow-control CRC errors, counter.
	FieldNVLinkCRCFlitErrors
	// FieldNVLinkCRCDataErrors: NVLink data CRC errors, counter.
	FieldNVLinkCRCDataErrors
	// FieldNVLinkReplays: NVLink replays, counter.
	FieldNVLinkReplays
	// FieldNVLinkRecoveries: NVLink recoveries, counter.
	FieldNVLinkRecoveries
	// FieldVGPULicense: Whether a vGPU license is held (1) or not (0).
	FieldVGPULicense
	// FieldRowsRemappedCorrectable: Rows remapped because of correctable errors, counter.
	FieldRowsRemappedCorrectable
	// FieldRowsRemappedUncorrectable: Rows remapped because of uncorrectable errors, counter.
	FieldRowsRemappedUncorrectable
	// FieldRowRemapPending: Whether a remapping waits for a reset (1) or not (0).
	FieldRowRemapPending
	// FieldRowRemapFailure: Whether a remapping failed (1) or not (0).
	FieldRowRemapFailure
	// FieldECCCorrectedVolatile: Corrected ECC errors since the driver was loaded, counter.
	FieldECCCorrectedVolatile
	// FieldECCUncorrectedVolatile: Uncorrected ECC errors since the driver was loaded, counter.
	FieldECCUncorrectedVolatile
	// FieldECCCorrectedAggregate: Corrected ECC errors over the lifetime of the GPU, counter.
	FieldECCCorrectedAggregate
	// FieldECCUncorrectedAggregate: Uncorrected ECC errors over the lifetime of the GPU, counter.
	FieldECCUncorrectedAggregate
	// FieldRetiredPagesCorrected: Pages retired because of corrected errors, counter.
	FieldRetiredPagesCorrected
	// FieldRetiredPagesUncorrected: Pages retired because of uncorrected errors, counter.
	FieldRetiredPagesUncorrected
	// FieldRetiredPagesPending: Whether a page waits to be retired (1) or not (0).
	FieldRetiredPagesPending
	// FieldViolationPower: Time limited by power, seconds, counter.
	FieldViolationPower
	// FieldViolationThermal: Time limited by temperature, seconds, counter.
	FieldViolationThermal
	// FieldViolationSyncBoost: Time limited by sync boost, seconds, counter.
	FieldViolationSyncBoost
	// FieldViolationBoardLimit: Time limited by the board, seconds, counter.
	FieldViolationBoardLimit
	// FieldViolationLowUtilization: Time at low clocks for low utilization, seconds, counter.
	FieldViolationLowUtilization
	// FieldViolationReliability: Time limited by reliability, seconds, counter.
	FieldViolationReliability
	// FieldClockEventReasons: Reasons why clocks are lowered, as NVML's bit mask.
	FieldClockEventReasons
	// FieldRecoveryAction: NVML's recovery action: 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset.
	FieldRecoveryAction
	// FieldGraphicsActive: GPM: graphics or compute engine active, ratio.
	FieldGraphicsActive
	// FieldSMActive: GPM: an SM had a warp, ratio.
	FieldSMActive
	// FieldSMOccupancy: GPM: ratio of resident warps to possible warps.
	FieldSMOccupancy
	// FieldTensorActive: GPM: tensor pipes active, ratio.
	FieldTensorActive
	// FieldDRAMActive: GPM: memory interface active, ratio.
	FieldDRAMActive
	// FieldFP64Active: GPM: FP64 pipe active, ratio.
	FieldFP64Active
	// FieldFP32Active: GPM: FP32 pipe active, ratio.
	FieldFP32Active
	// FieldFP16Active: GPM: FP16 pipe active, ratio.
	FieldFP16Active
	// FieldIntegerActive: GPM: integer pipe active, ratio.
	FieldIntegerActive
	// FieldPCIeTransmitRate: GPM: PCIe sent, bytes per second.
	FieldPCIeTransmitRate
	// FieldPCIeReceiveRate: GPM: PCIe received, bytes per second.
	FieldPCIeReceiveRate
	// FieldNVLinkTransmitRate: NVLink sent, bytes per second: from GPM; before Hopper, the growth of the counter since the previous round.
	FieldNVLinkTransmitRate
	// FieldNVLinkReceiveRate: NVLink received, bytes per second: from GPM; before Hopper, the growth of the counter since the previous round.
	FieldNVLinkReceiveRate
	// FieldNVLinkPacketsTransmitted: Packets sent over all NVLinks, counter. Only NVLink 5 and later provide this field and the following ones
	// up to FieldNVLinkFECHistory.
	FieldNVLinkPacketsTransmitted
	// FieldNVLinkPacketsReceived: Packets received over all NVLinks, counter.
	FieldNVLinkPacketsReceived
	// FieldNVLinkMalformedPackets: Malformed packets received over all NVLinks, counter.
	FieldNVLinkMalformedPackets
	// FieldNVLinkBufferOverruns: Packets that overran a buffer of any NVLink, counter.
	FieldNVLinkBufferOverruns
	// FieldNVLinkReceiveErrors: Packets received with an error over all NVLinks, counter.
	FieldNVLinkReceiveErrors
	// FieldNVLinkRemoteErrors: Packets received that the remote switch marked as erroneous, counter.
	FieldNVLinkRemoteErrors
	// FieldNVLinkGeneralErrors: Packets received with an error from the remote side, counter.
	FieldNVLinkGeneralErrors
	// FieldNVLinkIntegrityErrors: How often the count of local errors exceeded its limit, counter.
	FieldNVLinkIntegrityErrors
	// FieldNVLinkTransmitDiscards: Packets discarded before they were sent, counter.
	FieldNVLinkTransmitDiscards
	// FieldNVLinkRecoveriesSuccessful: Recoveries of links that ended with the link up, counter.
	FieldNVLinkRecoveriesSuccessful
	// FieldNVLinkRecoveriesFailed: Recoveries of links that failed, counter.
	FieldNVLinkRecoveriesFailed
	// FieldNVLinkRecoveryEvents: Recoveries of links, counter.
	FieldNVLinkRecoveryEvents
	// FieldNVLinkEffectiveErrors: Errors after forward error correction, counter.
	FieldNVLinkEffectiveErrors
	// FieldNVLinkSymbolErrors: Symbol errors, counter.
	FieldNVLinkSymbolErrors
	// FieldNVLinkEffectiveBER: Bit error rate after forward error correction of the worst link, packed by NVML: see BitErrorRate.
	FieldNVLinkEffectiveBER
	// FieldNVLinkSymbolBER: Bit error rate of symbols of the worst link, packed by NVML: see BitErrorRate.
	FieldNVLinkSymbolBER
	// FieldNVLinkFECHistory: Blocks with no corrected error, counter; the next FECHistories-1 fields count blocks with one more corrected
	// error each.
	FieldNVLinkFECHistory

	// FieldNVLink0Transmitted: Data sent over the first NVLink, bytes, counter. The other links follow: see OfNVLink.
	FieldNVLink0Transmitted = FieldNVLinkFECHistory + FECHistories
	// FieldNVLink0Received: Data received over the first NVLink, bytes, counter.
	FieldNVLink0Received = FieldNVLink0Transmitted + 1
	// FieldNVLink0TransmitRate: Sent over the first NVLink, bytes per second: the growth of the counter since the previous round.
	FieldNVLink0TransmitRate = FieldNVLink0Transmitted + 2
	// FieldNVLink0ReceiveRate: Received over the first NVLink, bytes per second: the growth of the counter since the previous round.
	FieldNVLink0ReceiveRate = FieldNVLink0Transmitted + 3

	// FieldCount is the number of fields.
	FieldCount = FieldNVLink0Transmitted + perNVLink*NVLinks
)

const (
	// NVLinks is the number of links with fields of their own: DCGM has names for as many.
	NVLinks = 18
	// FECHistories is the number of NVML's counters of corrected errors per block.
	FECHistories = 16
	// perNVLink is the number of fields of each link.
	perNVLink = 4
)

// OfNVLink is the field of a link, from 0 to NVLinks-1, that corresponds to the field of the first link: FieldNVLink0Transmitted,
// FieldNVLink0Received, FieldNVLink0TransmitRate or FieldNVLink0ReceiveRate.
func (f Field) OfNVLink(link int) Field { return f + Field(perNVLink*link) } //nolint:gosec // links are few
