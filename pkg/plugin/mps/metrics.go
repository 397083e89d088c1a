package mps

import (
	"strings"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
)

// Metrics returns the metrics of MPS on a node, read from the counts of this process and from the number of control daemons by state.
func Metrics(counts *Counts, daemons func() map[gpu.MPSDaemonState]int) []prepare.Metric {
	metrics := []prepare.Metric{
		{
			Name: "prism_mps_restarts_total", Help: "Restarts of MPS control daemons that had exited.", Counter: true,
			Read: func() float64 { return float64(counts.Restarts()) },
		},
		{
			Name: "prism_mps_limits_changed_total", Help: "Limits of MPS control daemons that were restored after a process had changed them.", Counter: true,
			Read: func() float64 { return float64(counts.LimitsChanged()) },
		},
		{
			Name: "prism_mps_reconcile_errors_total", Counter: true,
			Help: "Failed attempts to restore MPS control daemons, compute modes and limits; see the Events of the Node.",
			Read: func() float64 { return float64(counts.Failures()) },
		},
	}
	for _, state := range []gpu.MPSDaemonState{gpu.MPSRunning, gpu.MPSDead, gpu.MPSUnstoppable} {
		metrics = append(metrics, prepare.Metric{
			Name: "prism_mps_daemons", Help: "MPS control daemons on this node, by state.", Labels: map[string]string{"state": strings.ToLower(string(state))},
			Read: func() float64 { return float64(daemons()[state]) },
		})
	}
	return metrics
}
