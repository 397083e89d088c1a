package diagnostics

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/plugin/prepare"
)

func TestMetrics_OfSteps_Registered(t *testing.T) {
	t.Parallel()
	read := quiet()
	read.Steps = []prepare.Metric{
		{Name: "prism_daemons", Help: "Daemons.", Read: func() float64 { return 3 }},
		{Name: "prism_daemon_restarts_total", Help: "Restarts.", Counter: true, Read: func() float64 { return 4 }},
	}
	measured := series(t, NewMetrics("v1", read))
	assert.Contains(t, measured, `prism_daemons{} 3`)
	assert.Contains(t, measured, `prism_daemon_restarts_total{} 4`)
}
