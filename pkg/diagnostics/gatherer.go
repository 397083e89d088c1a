package diagnostics

import "github.com/prometheus/client_golang/prometheus"

// Gatherer collects the metrics of a scrape.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }
