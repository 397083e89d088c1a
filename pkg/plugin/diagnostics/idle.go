package diagnostics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Idle returns a server for the probes of a process on a node without a GPU. The process is live and ready, because a rollout must not wait
// for it. The note says why it is idle.
func Idle(endpoint, version, note string) HTTP {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(buildInfo(version), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return HTTP{Endpoint: endpoint, Metrics: m, Ready: func() error { return nil }, Note: func() string { return note }}
}

func buildInfo(version string) prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "prism_build_info", Help: "Version of this program, always 1."}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	return info
}
