package labels

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the Prometheus metrics of the labels.
type Metrics struct{ conflicts prometheus.Gauge }

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{conflicts: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "prism_controller_node_label_conflicts",
		Help: "Labels of Nodes that another field manager sets to another value, with the chart value nodeLabels.enabled.",
	})}
	registry.MustRegister(m.conflicts)
	return m
}

func (m *Metrics) setConflicts(n int) {
	if m != nil {
		m.conflicts.Set(float64(n))
	}
}
