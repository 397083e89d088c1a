package metrics

import (
	"slices"
	"strconv"
	"time"
)

// Window is the period of dcgm-exporter's counters of recent events: its default.
const Window = 5 * time.Minute

// clockEvents are dcgm-exporter's names of the bits of FieldClockEventReasons, the lowest first.
var clockEvents = [...]string{
	"gpu_idle", "clocks_setting", "power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake", "display_clocks",
}

// ClockEvents count samples by the bits of FieldClockEventReasons, the lowest first.
type ClockEvents [len(clockEvents)]uint32

// ClockEventHistory counts the samples of the last Window. The zero value is empty.
type ClockEventHistory struct{ samples []clockSample }

type clockSample struct {
	at      int64
	reasons uint16
}

// Add adds a sample, and returns the counts up to it. It drops later samples, because the clock was set back.
func (h *ClockEventHistory) Add(at time.Time, reasons float64) (counts ClockEvents) {
	h.samples = slices.DeleteFunc(h.samples, func(s clockSample) bool { return s.at > at.UnixMilli() })
	h.samples = append(h.samples, clockSample{at.UnixMilli(), uint16(uint64(reasons) & (1<<len(clockEvents) - 1))})
	old := 0
	for h.samples[old].at <= at.Add(-Window).UnixMilli() {
		old++
	}
	h.samples = slices.Delete(h.samples, 0, old)
	for _, s := range h.samples {
		for bit := range counts {
			counts[bit] += uint32(s.reasons >> bit & 1)
		}
	}
	return counts
}

// labelledCount is a number with labels of its own.
type labelledCount struct {
	count  int
	labels []byte
}

// newCount returns a count with the label that dcgm-exporter adds to it.
func newCount(count int, name, value string) labelledCount {
	return labelledCount{count, labels(name, value, "window_size_in_ms", strconv.FormatInt(Window.Milliseconds(), 10))}
}

// recentClockEvents are the samples of the last Window by reason, without reasons that did not occur.
func (b *board) recentClockEvents() []labelledCount {
	if _, known := b.Values.Get(FieldClockEventReasons); !known {
		return nil
	}
	var all []labelledCount
	for bit, count := range b.ClockEvents {
		if count > 0 {
			all = append(all, newCount(int(count), "clock_event", clockEvents[bit]))
		}
	}
	return all
}

// recentXIDs are the errors of the last Window on the whole GPU by code, the last ones first, without codes that did not occur.
func (b *board) recentXIDs() []labelledCount {
	var codes []uint64
	counts := map[uint64]int{}
	for _, x := range b.lastXIDs() {
		for _, at := range x.Times {
			if !at.After(b.At.Add(-Window)) {
				continue
			}
			if counts[x.Code] == 0 {
				codes = append(codes, x.Code)
			}
			counts[x.Code]++
		}
	}
	all := make([]labelledCount, 0, len(codes))
	for _, code := range codes {
		all = append(all, newCount(counts[code], "xid", strconv.FormatUint(code, 10)))
	}
	return all
}
