package mps_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/mps"
)

func TestMetrics_Daemons_CountedByState(t *testing.T) {
	t.Parallel()
	daemons := func() map[gpu.MPSDaemonState]int {
		return map[gpu.MPSDaemonState]int{gpu.MPSRunning: 3, gpu.MPSDead: 1}
	}
	counted, counters := map[string]float64{}, map[string]float64{}
	for _, m := range mps.Metrics(&mps.Counts{}, daemons) {
		if m.Counter {
			counters[m.Name] = m.Read()
			continue
		}
		assert.Equal(t, "prism_mps_daemons", m.Name)
		counted[m.Labels["state"]] = m.Read()
	}
	assert.Equal(t, map[string]float64{"running": 3, "dead": 1, "unstoppable": 0}, counted)
	assert.Equal(t, map[string]float64{
		"prism_mps_restarts_total": 0, "prism_mps_limits_changed_total": 0, "prism_mps_reconcile_errors_total": 0,
	}, counters)
}
