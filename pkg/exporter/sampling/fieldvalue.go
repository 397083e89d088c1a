package sampling

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// allLinks is the scope of an NVLink field that sums the links.
const allLinks = math.MaxUint32

// source is a field value of NVML from which a field can be read.
type source struct {
	id    uint32
	scale float64
	// scope is NVML's scope: all links, or none, which also means the first link. perLink: the field is the sum of the values of all links.
	scope   uint32
	perLink bool
	// worst: the field is the value of the link with the highest bit error rate, not the sum.
	worst bool
}

const (
	milli = 1e-3
	nano  = 1e-9
	kibi  = 1 << 10
)

// sources lists the sources of each field in the order in which they are tried: one generation of GPUs supports the first, another one the
// second. A field without a supported source may have a call of its own.
var sources = withLinks(map[metrics.Field][]source{
	metrics.FieldTemperatureMemory: {{id: nvml.FI_DEV_MEMORY_TEMP, scale: 1}},
	metrics.FieldPowerUsage:        {{id: nvml.FI_DEV_POWER_AVERAGE, scale: milli}},
	metrics.FieldPowerLimit:        {{id: nvml.FI_DEV_POWER_CURRENT_LIMIT, scale: milli}},
	metrics.FieldEnergy:            {{id: nvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION, scale: milli}},
	metrics.FieldPCIeReplays:       {{id: nvml.FI_DEV_PCIE_REPLAY_COUNTER, scale: 1}},
	metrics.FieldNVLinkTransmitted: {
		{id: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, scale: kibi, scope: allLinks},
		{id: nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES, scale: 1, perLink: true},
	},
	metrics.FieldNVLinkReceived: {
		{id: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, scale: kibi, scope: allLinks},
		{id: nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES, scale: 1, perLink: true},
	},
	metrics.FieldNVLinkCRCFlitErrors: {{id: nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, scale: 1}},
	metrics.FieldNVLinkCRCDataErrors: {{id: nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, scale: 1}},
	metrics.FieldNVLinkReplays: {
		{id: nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, scale: 1},
		{id: nvml.FI_DEV_NVLINK_ERROR_DL_REPLAY, scale: 1, perLink: true},
	},
	metrics.FieldNVLinkRecoveries: {
		{id: nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, scale: 1},
		{id: nvml.FI_DEV_NVLINK_ERROR_DL_RECOVERY, scale: 1, perLink: true},
	},
	metrics.FieldRowsRemappedCorrectable:   {{id: nvml.FI_DEV_REMAPPED_COR, scale: 1}},
	metrics.FieldRowsRemappedUncorrectable: {{id: nvml.FI_DEV_REMAPPED_UNC, scale: 1}},
	metrics.FieldRowRemapPending:           {{id: nvml.FI_DEV_REMAPPED_PENDING, scale: 1}},
	metrics.FieldRowRemapFailure:           {{id: nvml.FI_DEV_REMAPPED_FAILURE, scale: 1}},
	metrics.FieldECCCorrectedVolatile:      {{id: nvml.FI_DEV_ECC_SBE_VOL_TOTAL, scale: 1}},
	metrics.FieldECCUncorrectedVolatile:    {{id: nvml.FI_DEV_ECC_DBE_VOL_TOTAL, scale: 1}},
	metrics.FieldECCCorrectedAggregate:     {{id: nvml.FI_DEV_ECC_SBE_AGG_TOTAL, scale: 1}},
	metrics.FieldECCUncorrectedAggregate:   {{id: nvml.FI_DEV_ECC_DBE_AGG_TOTAL, scale: 1}},
	metrics.FieldRetiredPagesCorrected:     {{id: nvml.FI_DEV_RETIRED_SBE, scale: 1}},
	metrics.FieldRetiredPagesUncorrected:   {{id: nvml.FI_DEV_RETIRED_DBE, scale: 1}},
	metrics.FieldRetiredPagesPending:       {{id: nvml.FI_DEV_RETIRED_PENDING, scale: 1}},
	metrics.FieldViolationPower:            {{id: nvml.FI_DEV_PERF_POLICY_POWER, scale: nano}},
	metrics.FieldViolationThermal:          {{id: nvml.FI_DEV_PERF_POLICY_THERMAL, scale: nano}},
	metrics.FieldViolationSyncBoost:        {{id: nvml.FI_DEV_PERF_POLICY_SYNC_BOOST, scale: nano}},
	metrics.FieldViolationBoardLimit:       {{id: nvml.FI_DEV_PERF_POLICY_BOARD_LIMIT, scale: nano}},
	metrics.FieldViolationLowUtilization:   {{id: nvml.FI_DEV_PERF_POLICY_LOW_UTILIZATION, scale: nano}},
	metrics.FieldViolationReliability:      {{id: nvml.FI_DEV_PERF_POLICY_RELIABILITY, scale: nano}},
	metrics.FieldRecoveryAction:            {{id: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION, scale: 1}},
})

// linkCounters are the counters of NVLink 5, which NVML reports for each link.
var linkCounters = map[metrics.Field]uint32{
	metrics.FieldNVLinkPacketsTransmitted:   nvml.FI_DEV_NVLINK_COUNT_XMIT_PACKETS,
	metrics.FieldNVLinkPacketsReceived:      nvml.FI_DEV_NVLINK_COUNT_RCV_PACKETS,
	metrics.FieldNVLinkMalformedPackets:     nvml.FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS,
	metrics.FieldNVLinkBufferOverruns:       nvml.FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS,
	metrics.FieldNVLinkReceiveErrors:        nvml.FI_DEV_NVLINK_COUNT_RCV_ERRORS,
	metrics.FieldNVLinkRemoteErrors:         nvml.FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS,
	metrics.FieldNVLinkGeneralErrors:        nvml.FI_DEV_NVLINK_COUNT_RCV_GENERAL_ERRORS,
	metrics.FieldNVLinkIntegrityErrors:      nvml.FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS,
	metrics.FieldNVLinkTransmitDiscards:     nvml.FI_DEV_NVLINK_COUNT_XMIT_DISCARDS,
	metrics.FieldNVLinkRecoveriesSuccessful: nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS,
	metrics.FieldNVLinkRecoveriesFailed:     nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS,
	metrics.FieldNVLinkRecoveryEvents:       nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
	metrics.FieldNVLinkEffectiveErrors:      nvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS,
	metrics.FieldNVLinkSymbolErrors:         nvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS,
}

// withLinks adds the sources of NVLink 5 and of each link.
func withLinks(all map[metrics.Field][]source) map[metrics.Field][]source {
	for field, id := range linkCounters {
		all[field] = []source{{id: id, scale: 1, perLink: true}}
	}
	all[metrics.FieldNVLinkEffectiveBER] = []source{{id: nvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, scale: 1, perLink: true, worst: true}}
	all[metrics.FieldNVLinkSymbolBER] = []source{{id: nvml.FI_DEV_NVLINK_COUNT_SYMBOL_BER, scale: 1, perLink: true, worst: true}}
	for i := range metrics.Field(metrics.FECHistories) {
		all[metrics.FieldNVLinkFECHistory+i] = []source{{id: nvml.FI_DEV_NVLINK_COUNT_FEC_HISTORY_0 + uint32(i), scale: 1, perLink: true}}
	}
	for link := range metrics.NVLinks {
		scope := uint32(link)
		all[metrics.FieldNVLink0Transmitted.OfNVLink(link)] = []source{
			{id: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, scale: kibi, scope: scope}, {id: nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES, scale: 1, scope: scope},
		}
		all[metrics.FieldNVLink0Received.OfNVLink(link)] = []source{
			{id: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, scale: kibi, scope: scope}, {id: nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES, scale: 1, scope: scope},
		}
	}
	return all
}

// fieldReader reads the field values of a GPU, all in one call.
type fieldReader struct {
	// wanted are the fields for which asked was computed.
	wanted metrics.FieldSet
	// at counts the sources of each field that this GPU does not support.
	at     [metrics.FieldCount]int
	stale  bool
	asked  []asked
	values []nvml.FieldValue
}

// asked says to which field values[first:first+count] belong.
type asked struct {
	field        metrics.Field
	scale        float64
	worst        bool
	first, count int
}

// exhausted reports whether no source of the field is left to try.
func (r *fieldReader) exhausted(field metrics.Field) bool { return r.at[field] >= len(sources[field]) }

// plan lists the values to read.
func (r *fieldReader) plan(fields metrics.FieldSet) {
	if fields == r.wanted && !r.stale {
		return
	}
	r.wanted, r.stale = fields, false
	r.asked, r.values = r.asked[:0], r.values[:0]
	for field := range metrics.FieldCount {
		if !fields.Has(field) || r.exhausted(field) {
			continue
		}
		from, count := sources[field][r.at[field]], 1
		if from.perLink {
			count = nvml.NVLINK_MAX_LINKS
		}
		r.asked = append(r.asked, asked{field: field, scale: from.scale, worst: from.worst, first: len(r.values), count: count})
		for link := range uint32(count) {
			scope := from.scope
			if from.perLink {
				scope = link
			}
			r.values = append(r.values, nvml.FieldValue{FieldId: from.id, ScopeId: scope})
		}
	}
}

// read reads the values of all fields in one call and sets those that are available. With an empty list it makes no call: the library
// accesses the first entry unchecked.
func (r *fieldReader) read(ctx context.Context, g *device, fields metrics.FieldSet, into *metrics.Values) error {
	r.plan(fields)
	if len(r.values) == 0 {
		return nil
	}
	for i := range r.values {
		r.values[i].NvmlReturn = uint32(nvml.ERROR_UNKNOWN) // for entries that the driver does not fill in
	}
	_, ok, err := value(ctx, g, "nvmlDeviceGetFieldValues", func() (none, nvml.Return) { return none{}, g.handle.GetFieldValues(r.values) })
	if err != nil || !ok {
		return err
	}
	for _, a := range r.asked {
		sum, known, supported := r.sum(a)
		if known {
			into.Set(a.field, sum*a.scale)
		}
		if !supported {
			r.at[a.field]++
			r.stale = true
		}
	}
	return nil
}

// sum adds up the values, or takes the worst. known: there is a value. supported: at least one of the values is supported.
func (r *fieldReader) sum(a asked) (sum float64, known, supported bool) {
	for i := range r.values[a.first : a.first+a.count] {
		v := &r.values[a.first+i]
		switch nvml.Return(v.NvmlReturn) { //nolint:gosec // NVML's code
		case nvml.SUCCESS:
			supported = true
			number, ok := decode(v)
			switch {
			case !ok:
			case !a.worst:
				sum, known = sum+number, true
			case !known || metrics.BitErrorRate(number) > metrics.BitErrorRate(sum):
				sum, known = number, true
			}
		case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_FUNCTION_NOT_FOUND:
		default:
			supported = true // no value at present
		}
	}
	return sum, known, supported
}

// decode returns the number in a value; false for NVML's NOT_AVAILABLE and for anything but a number.
func decode(v *nvml.FieldValue) (float64, bool) {
	bits := binary.NativeEndian.Uint64(v.Value[:])
	low := binary.NativeEndian.Uint32(v.Value[:])
	switch nvml.ValueType(v.ValueType) { //nolint:gosec // a small enumeration
	case nvml.VALUE_TYPE_DOUBLE:
		number := math.Float64frombits(bits)
		return number, !math.IsNaN(number) && !math.IsInf(number, 0)
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(low), low != math.MaxUint32
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return float64(bits), bits != math.MaxUint64
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(bits)), bits != math.MaxUint64 //nolint:gosec // it is one
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(low)), low != math.MaxUint32 //nolint:gosec // it is one
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		short := binary.NativeEndian.Uint16(v.Value[:])
		return float64(short), short != math.MaxUint16
	default:
		return 0, false
	}
}
