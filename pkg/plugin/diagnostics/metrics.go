package diagnostics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/prepare/gc"
)

// Metrics holds the metrics of the process in a registry of its own. Failures are measured like successes.
type Metrics struct {
	registry  *prometheus.Registry
	prepare   *prometheus.HistogramVec
	unprepare *prometheus.HistogramVec
	collected *prometheus.CounterVec
	failures  prometheus.Counter
}

// Readings are functions that return the current values from memory, called at each scrape.
type Readings struct {
	// Devices counts the published devices by type.
	Devices func() map[string]int
	// Faults counts GPUs that do not answer.
	Faults func() int
	// Claims counts claims with a record, and how many of them have a pending cleanup.
	Claims func() (claims, pending int)
	// DriverLoaded reports whether the NVIDIA driver answers.
	DriverLoaded func() bool
	// SliceErrors counts failed writes of ResourceSlices, DroppedFields fields that the API server did not store.
	SliceErrors, DroppedFields func() int64
	// Damaged counts records that were set aside.
	Damaged func() int
	// Configuration lists the reasons of Events, of configReasons, for which the node's configuration is not applied.
	Configuration func() []string
	// Changing counts the GPUs whose layout changes once their devices are released.
	Changing func() int
	// Intervals counts the GPUs whose time-slice interval is not the configured one.
	Intervals func() int
	// Health are the findings of GPUs.
	Health HealthReadings
	// Steps are the metrics of the steps.
	Steps []prepare.Metric
}

// durations are buckets from the fastest claim to the kubelet's deadline.
var durations = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 45,
}

// NewMetrics registers all metrics of the process.
func NewMetrics(version string, read Readings) *Metrics {
	outcome := []string{"outcome"}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		prepare: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "prism_prepare_duration_seconds", Help: "Time to prepare one claim, failures included.", Buckets: durations,
		}, outcome),
		unprepare: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "prism_unprepare_duration_seconds", Help: "Time to unprepare one claim, failures included.", Buckets: durations,
		}, outcome),
		collected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prism_garbage_collected_total", Help: "Leaked resources that were removed, by kind.",
		}, []string{"kind"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "prism_garbage_collection_errors_total", Help: "Failures to find or remove leaked resources.",
		}),
	}
	for _, kind := range gc.Kinds {
		m.collected.WithLabelValues(string(kind))
	}
	for _, v := range []*prometheus.HistogramVec{m.prepare, m.unprepare} {
		v.WithLabelValues("success")
		v.WithLabelValues("error")
	}
	m.registry.MustRegister(m.prepare, m.unprepare, m.collected, m.failures, buildInfo(version), &readings{read}, &healthReadings{read.Health},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, metric := range read.Steps {
		m.registry.MustRegister(ofStep(metric))
	}
	return m
}

// Prepared counts a Prepare of one claim, also a failed one, and its time.
func (m *Metrics) Prepared(d time.Duration, err error) { observe(m.prepare, d, err) }

// Unprepared counts an Unprepare of one claim, also a failed one, and its time.
func (m *Metrics) Unprepared(d time.Duration, err error) { observe(m.unprepare, d, err) }

// Collected counts a leak that was removed.
func (m *Metrics) Collected(kind gc.Kind) {
	m.collected.WithLabelValues(string(kind)).Inc()
}

// CollectionFailed counts a failure of the garbage collection.
func (m *Metrics) CollectionFailed() { m.failures.Inc() }

func observe(v *prometheus.HistogramVec, d time.Duration, err error) {
	outcome := "success"
	if err != nil {
		outcome = "error"
	}
	v.WithLabelValues(outcome).Observe(d.Seconds())
}

// configReasons are the reasons for which a node's configuration is not applied. Each is a series of the metric.
var configReasons = []string{events.NodeConfigUnavailable, events.NodeConfigInvalid}

// readings is the collector of Readings.
type readings struct{ Readings }

var (
	devicesDesc   = prometheus.NewDesc("prism_devices", "Devices, by type and state.", []string{"type", "state"}, nil)
	claimsDesc    = prometheus.NewDesc("prism_claims", "Claims with a record on this node, by state.", []string{"state"}, nil)
	driverDesc    = prometheus.NewDesc("prism_nvidia_driver_loaded", "Whether the NVIDIA driver responds (1) or not (0).", nil, nil)
	slicesDesc    = prometheus.NewDesc("prism_resourceslice_errors_total", "Failed attempts to publish ResourceSlices.", nil, nil)
	droppedDesc   = prometheus.NewDesc("prism_resourceslice_dropped_fields_total", "ResourceSlices that the API server stored without some fields.", nil, nil)
	configDesc    = prometheus.NewDesc("prism_node_config_problem", "Whether the node's configuration is not applied for this reason (1) or not (0); see the Events of the Node.", []string{"reason"}, nil)
	changeDesc    = prometheus.NewDesc("prism_gpu_layout_changes_pending", "GPUs whose layout changes when their devices are released.", nil, nil)
	intervalsDesc = prometheus.NewDesc("prism_gpu_timeslice_intervals_not_applied", "GPUs whose time-slice interval differs from the configured one; see the Events of the Node.", nil, nil)
	damagedDesc   = prometheus.NewDesc("prism_checkpoints_corrupted_total", "Claim records that could not be read and were set aside.", nil, nil)
)

// Describe lists what Collect may send.
func (r *readings) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{devicesDesc, claimsDesc, driverDesc, slicesDesc, droppedDesc, damagedDesc, configDesc, changeDesc, intervalsDesc} {
		ch <- d
	}
}

// Collect reads the current values; it calls neither the driver nor the API server.
func (r *readings) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for kind, n := range r.Devices() {
		gauge(devicesDesc, float64(n), kind, "available")
	}
	gauge(devicesDesc, float64(r.Faults()), "gpu", "faulty")
	claims, pending := r.Claims()
	gauge(claimsDesc, float64(claims-pending), "prepared")
	gauge(claimsDesc, float64(pending), "releasing")
	loaded := 0.0
	if r.DriverLoaded() {
		loaded = 1
	}
	gauge(driverDesc, loaded)
	problems := r.Configuration()
	for _, reason := range configReasons {
		wrong := 0.0
		if slices.Contains(problems, reason) {
			wrong = 1
		}
		gauge(configDesc, wrong, reason)
	}
	gauge(changeDesc, float64(r.Changing()))
	gauge(intervalsDesc, float64(r.Intervals()))
	for desc, n := range map[*prometheus.Desc]int64{
		slicesDesc: r.SliceErrors(), droppedDesc: r.DroppedFields(), damagedDesc: int64(r.Damaged()),
	} {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n))
	}
}

// ofStep returns the collector of a step's metric.
func ofStep(m prepare.Metric) prometheus.Collector {
	if m.Counter {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: m.Name, Help: m.Help, ConstLabels: m.Labels}, m.Read)
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: m.Name, Help: m.Help, ConstLabels: m.Labels}, m.Read)
}
