package diagnostics

import "github.com/prometheus/client_golang/prometheus"

// Gatherer returns the gatherer for scrapes.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }
