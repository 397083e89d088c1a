package diagnostics

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/mps"
	"github.com/prism-gpu/prism/pkg/plugin/prepare/gc"
)

// series lists the series, "name{label="value"} figure", without histograms and metrics of Go and the process.
func series(t *testing.T, m *Metrics) []string {
	t.Helper()
	families, err := m.registry.Gather()
	require.NoError(t, err)
	var lines []string
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "prism_") || family.GetType() == dto.MetricType_HISTOGRAM {
			continue
		}
		for _, metric := range family.Metric {
			var labels []string
			for _, l := range metric.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			lines = append(lines, fmt.Sprintf("%s{%s} %v", family.GetName(), strings.Join(labels, ","), value))
		}
	}
	sort.Strings(lines)
	return lines
}

// observations counts the observations of the histograms, by name and outcome.
func observations(t *testing.T, m *Metrics) map[string]uint64 {
	t.Helper()
	families, err := m.registry.Gather()
	require.NoError(t, err)
	counts := map[string]uint64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			if h := metric.GetHistogram(); h != nil && strings.HasPrefix(family.GetName(), "prism_") {
				counts[family.GetName()+" "+metric.Label[0].GetValue()] = h.GetSampleCount()
			}
		}
	}
	return counts
}

// quiet returns readings of an idle node.
func quiet() Readings {
	zero, none := func() int { return 0 }, func() int64 { return 0 }
	return Readings{
		Devices: func() map[string]int { return nil }, Faults: zero, Claims: func() (int, int) { return 0, 0 },
		DriverLoaded: func() bool { return false }, SliceErrors: none, DroppedFields: none, Damaged: zero, Changing: zero, Intervals: zero,
		Configuration: func() []string { return nil }, Health: HealthReadings{Findings: func() []Finding { return nil }, Failures: none},
	}
}

func TestMetrics_Calls_CountedByOutcome(t *testing.T) {
	t.Parallel()
	m := NewMetrics("v1", quiet())
	for _, err := range []error{nil, errors.New("refused"), nil} {
		m.Prepared(time.Millisecond, err)
	}
	m.Unprepared(time.Millisecond, nil)
	m.Collected(gc.LeakedSpec)
	m.CollectionFailed()
	assert.Equal(t, map[string]uint64{
		"prism_prepare_duration_seconds success": 2, "prism_prepare_duration_seconds error": 1,
		"prism_unprepare_duration_seconds success": 1, "prism_unprepare_duration_seconds error": 0,
	}, observations(t, m))
	assert.Contains(t, series(t, m), `prism_garbage_collected_total{kind="spec"} 1`)
	assert.Contains(t, series(t, m), `prism_garbage_collection_errors_total{} 1`)
}

func TestReadings_Scraped_ReadEachTime(t *testing.T) {
	t.Parallel()
	claims, pending, loaded, damaged := 3, 1, true, 0
	m := NewMetrics("v1.2.3", Readings{
		Devices: func() map[string]int { return map[string]int{"gpu": 8, "monitor": 8} }, Faults: func() int { return 2 },
		Claims: func() (int, int) { return claims, pending }, DriverLoaded: func() bool { return loaded },
		SliceErrors: func() int64 { return 5 }, DroppedFields: func() int64 { return 6 }, Damaged: func() int { return damaged },
		Configuration: func() []string { return []string{"NodeConfigInvalid"} }, Changing: func() int { return 2 }, Intervals: func() int { return 4 },
		Health: HealthReadings{Failures: func() int64 { return 9 }, Findings: func() []Finding {
			return []Finding{{GPU: "GPU-a", Key: "gpu-lost", Value: "hung", Blocks: true}, {GPU: "GPU-b", Key: "unmonitored"}}
		}},
		Steps: mps.Metrics(&mps.Counts{}, func() map[gpu.MPSDaemonState]int { return map[gpu.MPSDaemonState]int{gpu.MPSRunning: 3} }),
	})
	assert.Equal(t, []string{
		`prism_build_info{version="v1.2.3"} 1`,
		`prism_checkpoints_corrupted_total{} 0`,
		`prism_claims{state="prepared"} 2`,
		`prism_claims{state="releasing"} 1`,
		`prism_devices{state="available",type="gpu"} 8`,
		`prism_devices{state="available",type="monitor"} 8`,
		`prism_devices{state="faulty",type="gpu"} 2`,
		`prism_garbage_collected_total{kind="claim"} 0`,
		`prism_garbage_collected_total{kind="effect"} 0`,
		`prism_garbage_collected_total{kind="file"} 0`,
		`prism_garbage_collected_total{kind="spec"} 0`,
		`prism_garbage_collection_errors_total{} 0`,
		`prism_gpu_health_poll_failures_total{} 9`,
		`prism_gpu_layout_changes_pending{} 2`,
		`prism_gpu_timeslice_intervals_not_applied{} 4`,
		`prism_gpu_unhealthy{gpu_uuid="GPU-a",key="gpu-lost",value="hung"} 1`,
		`prism_gpu_unhealthy{gpu_uuid="GPU-b",key="unmonitored",value=""} 0`,
		`prism_mps_daemons{state="dead"} 0`,
		`prism_mps_daemons{state="running"} 3`,
		`prism_mps_daemons{state="unstoppable"} 0`,
		`prism_mps_limits_changed_total{} 0`,
		`prism_mps_reconcile_errors_total{} 0`,
		`prism_mps_restarts_total{} 0`,
		`prism_node_config_problem{reason="NodeConfigInvalid"} 1`,
		`prism_node_config_problem{reason="NodeConfigUnavailable"} 0`,
		`prism_nvidia_driver_loaded{} 1`,
		`prism_resourceslice_dropped_fields_total{} 6`,
		`prism_resourceslice_errors_total{} 5`,
	}, series(t, m))
	claims, pending, loaded, damaged = 0, 0, false, 7
	now := series(t, m)
	for _, line := range []string{
		`prism_claims{state="prepared"} 0`, `prism_claims{state="releasing"} 0`, `prism_nvidia_driver_loaded{} 0`, `prism_checkpoints_corrupted_total{} 7`,
	} {
		assert.Contains(t, now, line)
	}
}

func TestDurations_Buckets_ReachTheKubeletsDeadline(t *testing.T) {
	t.Parallel()
	m := NewMetrics("v1", quiet())
	m.Prepared(90*time.Microsecond, nil)
	m.Prepared(44*time.Second, errors.New("no"))
	families, err := m.registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != "prism_prepare_duration_seconds" {
			continue
		}
		for _, metric := range family.Metric {
			buckets := metric.GetHistogram().Bucket
			if metric.Label[0].GetValue() == "success" {
				assert.EqualValues(t, 1, buckets[0].GetCumulativeCount(), "100 µs and less")
				continue
			}
			assert.EqualValues(t, 0, buckets[len(buckets)-2].GetCumulativeCount())
			assert.EqualValues(t, 1, buckets[len(buckets)-1].GetCumulativeCount(), "45 s")
		}
	}
}
