package metrics

import (
	"fmt"
	"math"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// linkCounters are NVLink 5's counters over all links: the end of DCGM's name, and the help.
var linkCounters = map[Field]struct{ name, help string }{
	FieldNVLinkPacketsTransmitted:   {"TX_PACKETS", "Packets sent over all NVLinks."},
	FieldNVLinkPacketsReceived:      {"RX_PACKETS", "Packets received over all NVLinks."},
	FieldNVLinkMalformedPackets:     {"RX_MALFORMED_PACKET_ERRORS", "Malformed packets received over all NVLinks."},
	FieldNVLinkBufferOverruns:       {"RX_BUFFER_OVERRUN_ERRORS", "Packets that overran a buffer of an NVLink."},
	FieldNVLinkReceiveErrors:        {"RX_ERRORS", "Packets received with an error over all NVLinks."},
	FieldNVLinkRemoteErrors:         {"RX_REMOTE_ERRORS", "Packets received that the remote switch marked as erroneous."},
	FieldNVLinkGeneralErrors:        {"RX_GENERAL_ERRORS", "Packets received with an error from the remote side."},
	FieldNVLinkIntegrityErrors:      {"LOCAL_LINK_INTEGRITY_ERRORS", "How often the count of local errors exceeded its limit."},
	FieldNVLinkTransmitDiscards:     {"TX_DISCARDS", "Packets discarded before they were sent."},
	FieldNVLinkRecoveriesSuccessful: {"LINK_RECOVERY_SUCCESSFUL_EVENTS", "Recoveries of NVLinks that succeeded."},
	FieldNVLinkRecoveriesFailed:     {"LINK_RECOVERY_FAILED_EVENTS", "Recoveries of NVLinks that failed."},
	FieldNVLinkRecoveryEvents:       {"LINK_RECOVERY_EVENTS", "Recoveries of NVLinks."},
	FieldNVLinkEffectiveErrors:      {"EFFECTIVE_ERRORS", "Errors of NVLinks after forward error correction."},
	FieldNVLinkSymbolErrors:         {"RX_SYMBOL_ERRORS", "Symbol errors of NVLinks."},
}

// linkRates are the bit error rates of NVLink 5.
var linkRates = map[Field]struct{ name, help string }{
	FieldNVLinkEffectiveBER: {"EFFECTIVE_BER", "Bit error rate after forward error correction of the worst NVLink"},
	FieldNVLinkSymbolBER:    {"SYMBOL_BER", "Bit error rate of symbols of the worst NVLink"},
}

// BitErrorRate decodes a ratio that NVML packs as an exponent in bits 0 to 7 and a mantissa in bits 8 to 11.
func BitErrorRate(packed float64) float64 {
	bits := uint64(packed)
	return float64(bits>>8&0xf) * math.Pow10(-int(bits&0xff))
}

// withLinks adds the rows of NVLink 5 and of each link. Fields in no set are sampled if counters of /metrics/dcgm select them.
func withLinks(table [FieldCount]Row) [FieldCount]Row {
	for f, c := range linkCounters {
		table[f] = Row{Help: c.help, Kind: Counter, Source: SourceNVML, Since: Blackwell, Where: "NVLink"}
	}
	for f, r := range linkRates {
		table[f] = Row{Help: r.help + ", as packed by NVML.", Source: SourceNVML, Since: Blackwell, Where: "NVLink"}
	}
	for i := range FECHistories {
		table[FieldNVLinkFECHistory+Field(i)] = Row{Help: fecHelp(i), Kind: Counter, Source: SourceNVML, Since: Blackwell, Where: "NVLink"}
	}
	for link := range NVLinks {
		var sets []string
		if link == 0 {
			sets = []string{gpu.MetricsNVLink}
		}
		for f, words := range map[Field]string{FieldNVLink0Transmitted: "sent", FieldNVLink0Received: "received"} {
			help := fmt.Sprintf("Data %s over NVLink %d", words, link)
			table[f.OfNVLink(link)] = Row{Help: help + ".", Unit: "bytes", Kind: Counter, Source: SourceNVML, Where: "NVLink", Sets: sets}
			rate := f.OfNVLink(link) + FieldNVLink0TransmitRate - FieldNVLink0Transmitted
			table[rate] = Row{Help: help + " per second.", Unit: "bytes_per_second", Source: SourceNVML, Where: "NVLink", Sets: sets}
		}
	}
	return table
}

func fecHelp(errors int) string {
	return fmt.Sprintf("Blocks received over all NVLinks with %d corrected errors.", errors)
}

// linkRows are DCGM's NVLink fields that only a CSV selects.
func linkRows() []dcgmRow {
	const count, bandwidth = "DCGM_FI_DEV_NVLINK_COUNT_", "BANDWIDTH_"
	rows := []dcgmRow{
		{name: count + "TX_BYTES", kind: Counter, extra: true, of: scaled(FieldNVLinkTransmitted, 1, 0), help: "Data sent over all NVLinks in bytes."},
		{name: count + "RX_BYTES", kind: Counter, extra: true, of: scaled(FieldNVLinkReceived, 1, 0), help: "Data received over all NVLinks in bytes."},
	}
	for f := FieldNVLinkPacketsTransmitted; f < FieldNVLinkFECHistory; f++ {
		if c, ok := linkCounters[f]; ok {
			rows = append(rows, dcgmRow{name: count + c.name, kind: Counter, extra: true, of: scaled(f, 1, 0), help: c.help})
			continue
		}
		r := linkRates[f]
		rows = append(rows, dcgmRow{name: count + r.name, extra: true, of: scaled(f, 1, 0), help: r.help + ", as packed by NVML."},
			dcgmRow{name: count + r.name + "_FLOAT", extra: true, of: conversion{fields: []Field{f}, ber: true}, help: r.help + "."})
	}
	for i := range FECHistories {
		rows = append(rows, dcgmRow{
			name: fmt.Sprintf("%sFEC_HISTORY_%d", count, i), kind: Counter, extra: true, of: scaled(FieldNVLinkFECHistory+Field(i), 1, 0), help: fecHelp(i),
		})
	}
	for _, way := range []struct {
		name, words string
		all         []Field
		first       []Field
	}{
		{"", "over", nil, []Field{FieldNVLink0TransmitRate, FieldNVLink0ReceiveRate}},
		{"TX_", "sent over", []Field{FieldNVLinkTransmitRate}, []Field{FieldNVLink0TransmitRate}},
		{"RX_", "received over", []Field{FieldNVLinkReceiveRate}, []Field{FieldNVLink0ReceiveRate}},
	} {
		const unit = " in MB/s, averaged over the last interval, although the type is counter."
		add := func(end, what string, fields []Field) {
			rows = append(rows, dcgmRow{
				name: "DCGM_FI_DEV_NVLINK_" + way.name + bandwidth + end, kind: Counter, extra: true, of: sum(1e-6, fields...), help: "Data " + way.words + what + unit,
			})
		}
		if way.all != nil {
			add("TOTAL", " all NVLinks", way.all)
		}
		for link := range NVLinks {
			if link == 0 && way.name == "" {
				continue // it is among the default counters
			}
			var fields []Field
			for _, f := range way.first {
				fields = append(fields, f.OfNVLink(link))
			}
			add(fmt.Sprintf("L%d", link), fmt.Sprintf(" NVLink %d", link), fields)
		}
	}
	return rows
}
