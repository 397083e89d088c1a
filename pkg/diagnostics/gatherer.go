package diagnostics

import "github.com/prometheus/client_golang/prometheus"

// Gatherer is what a scrape reads.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }
