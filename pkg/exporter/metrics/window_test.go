package metrics_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// TestDCGM_XIDsInWindow_CountedByCode: with dcgm-exporter's labels, at the level of the GPU; older errors are left out.
func TestDCGM_XIDsInWindow_CountedByCode(t *testing.T) {
	const name = "DCGM_EXP_XID_ERRORS_COUNT"
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	assert.NotContains(t, parsed(t, join(g).AppendDCGM(nil, nil)), name)
	ago := func(all ...time.Duration) (times []time.Time) {
		for _, d := range all {
			times = append(times, at.Add(-d))
		}
		return times
	}
	xid := func(code uint64, instance int, times []time.Time) metrics.XID {
		return metrics.XID{Code: code, GPUInstance: instance, Count: uint64(len(times)), Last: times[len(times)-1], Times: times}
	}
	g.XIDs = []metrics.XID{
		xid(31, -1, ago(time.Hour, metrics.Window, metrics.Window-time.Millisecond, time.Minute)), xid(31, 3, ago(time.Second)),
		xid(43, -1, ago(-time.Second)), xid(79, -1, ago(metrics.Window)),
	}
	families := parsed(t, join(g).AppendDCGM(nil, nil))
	assert.Len(t, samples(families, name), 2)
	assert.InDelta(t, 3, value(t, families, name, "xid", "31", "window_size_in_ms", "300000", "gpu", "0", "GPU_I_ID", ""), 0)
	assert.InDelta(t, 1, value(t, families, name, "xid", "43"), 0, "reported since the last round")
	assert.Equal(t, "GAUGE", families[name].GetType().String())
}

// TestDCGM_ClockEventsInWindow_CountedByReason: samples, as dcgm-exporter counts them.
func TestDCGM_ClockEventsInWindow_CountedByReason(t *testing.T) {
	const name = "DCGM_EXP_CLOCK_EVENTS_COUNT"
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	var history metrics.ClockEventHistory
	for n := range 600 {
		reasons := 1.0 // idle
		if n >= 590 {
			reasons = 4 + 64 // power cap, thermal
		}
		g.ClockEvents = history.Add(at.Add(time.Duration(n)*time.Second), reasons)
	}
	families := parsed(t, join(g).AppendDCGM(nil, nil))
	assert.Len(t, samples(families, name), 3)
	for event, count := range map[string]float64{"gpu_idle": 290, "power_cap": 10, "hw_thermal": 10} {
		assert.InDelta(t, count, value(t, families, name, "clock_event", event, "window_size_in_ms", "300000"), 0, event)
	}
	g.Values = metrics.Values{}
	assert.NotContains(t, parsed(t, join(g).AppendDCGM(nil, nil)), name, "a GPU that does not report reasons has none")
}

func TestClockEventHistory_ReasonsBeyondTheKnown_Ignored(t *testing.T) {
	var history metrics.ClockEventHistory
	assert.Zero(t, history.Add(at, 1<<20))
	assert.EqualValues(t, 1, history.Add(at, 1<<20+256)[8])
}

// TestClockEventHistory_ClockSetBack_LaterSamplesDropped: otherwise they would be kept and counted until the clock has caught up.
func TestClockEventHistory_ClockSetBack_LaterSamplesDropped(t *testing.T) {
	var history metrics.ClockEventHistory
	history.Add(at.Add(24*time.Hour), 1)
	assert.EqualValues(t, 1, history.Add(at, 2)[1])
	assert.EqualValues(t, 0, history.Add(at.Add(time.Second), 2)[0])
	assert.EqualValues(t, 2, history.Add(at.Add(time.Second), 4)[1])
}

// TestParseCSV_RecentEvents_Chosen: the sampled fields include the fields that a selection requires.
func TestParseCSV_RecentEvents_Chosen(t *testing.T) {
	chosen, problems, err := metrics.ParseCSV([]byte("DCGM_EXP_XID_ERRORS_COUNT, gauge, XIDs\nDCGM_EXP_CLOCK_EVENTS_COUNT, gauge, Clocks\n"))
	require.NoError(t, err)
	assert.Empty(t, problems)
	assert.Equal(t, []metrics.Field{metrics.FieldClockEventReasons}, chosen.Fields())
}
