package driver

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/prism-gpu/prism/pkg/prepare"
)

// Metrics are what the process tells Prometheus. Failures are measured like successes.
type Metrics struct {
	registry  *prometheus.Registry
	prepare   *prometheus.HistogramVec
	unprepare *prometheus.HistogramVec
	orphans   *prometheus.CounterVec
	reconcile prometheus.Counter
}

// Readings are the present figures that are read at each scrape, from memory.
type Readings struct {
	// Devices counts the devices of each type that are published.
	Devices func() map[string]int
	// Faults counts GPUs that do not answer.
	Faults func() int
	// Claims counts claims that have a record, and the debts among them.
	Claims func() (claims, debts int)
	// DriverLoaded tells whether the NVIDIA driver answers.
	DriverLoaded func() bool
	// SliceErrors and DroppedFields count what went wrong in publishing.
	SliceErrors, DroppedFields func() int64
	// Damaged counts records that were set aside.
	Damaged func() int
	// Configuration lists the reasons, of ConfigReasons, for which the node's configuration is not in force.
	Configuration func() []string
	// Changing counts the GPUs that are to be offered otherwise once they are free.
	Changing func() int
	// Intervals counts the GPUs whose time slices could not be set as the configuration says.
	Intervals func() int
}

// durations reach from the cheapest claim to the kubelet's deadline.
var durations = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 45,
}

// NewMetrics registers everything the process measures.
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
		orphans: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prism_garbage_collected_total", Help: "Things that nobody owned any more and that were removed, by kind.",
		}, []string{"kind"}),
		reconcile: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "prism_garbage_collection_errors_total", Help: "Failures in finding and removing what other processes left.",
		}),
	}
	for _, kind := range prepare.OrphanKinds {
		m.orphans.WithLabelValues(string(kind))
	}
	for _, v := range []*prometheus.HistogramVec{m.prepare, m.unprepare} {
		v.WithLabelValues("success")
		v.WithLabelValues("error")
	}
	m.registry.MustRegister(m.prepare, m.unprepare, m.orphans, m.reconcile, buildInfo(version), &readings{read},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) prepared(d time.Duration, err error)   { observe(m.prepare, d, err) }
func (m *Metrics) unprepared(d time.Duration, err error) { observe(m.unprepare, d, err) }

func (m *Metrics) orphanRemoved(kind prepare.OrphanKind) {
	m.orphans.WithLabelValues(string(kind)).Inc()
}
func (m *Metrics) reconcileFailed() { m.reconcile.Inc() }

func observe(v *prometheus.HistogramVec, d time.Duration, err error) {
	outcome := "success"
	if err != nil {
		outcome = "error"
	}
	v.WithLabelValues(outcome).Observe(d.Seconds())
}

// readings is the collector of Readings.
type readings struct{ Readings }

var (
	devicesDesc = prometheus.NewDesc("prism_devices", "Devices by type and state.", []string{"type", "state"}, nil)
	claimsDesc  = prometheus.NewDesc("prism_claims", "Claims that have a record on this node, by state.", []string{"state"}, nil)
	driverDesc  = prometheus.NewDesc("prism_nvidia_driver_loaded", "1 when the NVIDIA driver answers.", nil, nil)
	slicesDesc  = prometheus.NewDesc("prism_resourceslice_errors_total", "Attempts to publish ResourceSlices that failed.", nil, nil)
	droppedDesc = prometheus.NewDesc("prism_resourceslice_dropped_fields_total", "ResourceSlices that the API server stored without some fields.", nil, nil)
	configDesc  = prometheus.NewDesc("prism_node_config_problem", "1 for the reason for which the node's configuration is not in force; Events of the node have the sentence.", []string{"reason"}, nil)
	changeDesc  = prometheus.NewDesc("prism_gpu_layout_changes_pending", "GPUs that are to be offered otherwise as soon as they are free.", nil, nil)
	turnsDesc   = prometheus.NewDesc("prism_gpu_timeslice_intervals_not_applied", "GPUs whose time slices could not be set as the node's configuration says; Events of the node have the sentence.", nil, nil)
	damagedDesc = prometheus.NewDesc("prism_checkpoints_corrupted_total", "Claim records that could not be read and were set aside.", nil, nil)
)

// Describe lists what Collect may send.
func (r *readings) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{devicesDesc, claimsDesc, driverDesc, slicesDesc, droppedDesc, damagedDesc, configDesc, changeDesc, turnsDesc} {
		ch <- d
	}
}

// Collect reads the present figures; it asks neither the driver nor the API server.
func (r *readings) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for kind, n := range r.Devices() {
		gauge(devicesDesc, float64(n), kind, "available")
	}
	gauge(devicesDesc, float64(r.Faults()), "gpu", "faulty")
	claims, debts := r.Claims()
	gauge(claimsDesc, float64(claims-debts), "prepared")
	gauge(claimsDesc, float64(debts), "releasing")
	loaded := 0.0
	if r.DriverLoaded() {
		loaded = 1
	}
	gauge(driverDesc, loaded)
	problems := r.Configuration()
	for _, reason := range ConfigReasons {
		wrong := 0.0
		if slices.Contains(problems, reason) {
			wrong = 1
		}
		gauge(configDesc, wrong, reason)
	}
	gauge(changeDesc, float64(r.Changing()))
	gauge(turnsDesc, float64(r.Intervals()))
	for desc, n := range map[*prometheus.Desc]int64{
		slicesDesc: r.SliceErrors(), droppedDesc: r.DroppedFields(), damagedDesc: int64(r.Damaged()),
	} {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n))
	}
}
