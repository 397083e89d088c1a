package diagnostics

import "github.com/prometheus/client_golang/prometheus"

// Finding is a problem of a GPU, or its maintenance, with the key and the value of its taint.
type Finding struct {
	GPU, Key, Value string
	// Blocks: the GPU gets no new claims because of it.
	Blocks bool
}

// HealthReadings are functions that return the present findings from memory, called at each scrape.
type HealthReadings struct {
	Findings func() []Finding
	// Failures counts polls of GPUs that did not answer.
	Failures func() int64
}

// healthReadings is the collector of HealthReadings.
type healthReadings struct{ HealthReadings }

var (
	unhealthyDesc = prometheus.NewDesc("prism_gpu_unhealthy", "Findings of GPUs by the key and the value of their taint: whether they keep new claims from the GPU (1) or not (0).",
		[]string{"gpu_uuid", "key", "value"}, nil)
	pollFailuresDesc = prometheus.NewDesc("prism_gpu_health_poll_failures_total", "Polls of GPUs that did not answer.", nil, nil)
)

// Describe lists what Collect may send.
func (*healthReadings) Describe(ch chan<- *prometheus.Desc) {
	ch <- unhealthyDesc
	ch <- pollFailuresDesc
}

// Collect reads the present findings; it does not call the driver.
func (h *healthReadings) Collect(ch chan<- prometheus.Metric) {
	for _, f := range h.Findings() {
		blocks := 0.0
		if f.Blocks {
			blocks = 1
		}
		ch <- prometheus.MustNewConstMetric(unhealthyDesc, prometheus.GaugeValue, blocks, f.GPU, f.Key, f.Value)
	}
	ch <- prometheus.MustNewConstMetric(pollFailuresDesc, prometheus.CounterValue, float64(h.Failures()))
}
