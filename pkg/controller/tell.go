package controller

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/events"
)

// maxNote is the API's limit for the text of an Event, in bytes.
const maxNote = 1024

// tell reports each problem as an Event of that object once, and again when it comes back.
func (r *Reconciler) tell(about runtime.Object, problems []Problem) {
	now := map[Problem]bool{}
	for _, problem := range problems {
		now[problem] = true
		if !r.told[problem] {
			r.Events.Eventf(about, nil, corev1.EventTypeWarning, problem.Reason, events.ActionReconcile, "%s", shorten(problem.Note))
		}
	}
	r.told = now
}

// shorten cuts a text to what an Event takes, at a whole character.
func shorten(s string) string {
	if len(s) <= maxNote {
		return s
	}
	return strings.ToValidUTF8(s[:maxNote], "")
}

// Metrics are what the controller tells Prometheus.
type Metrics struct {
	classes  prometheus.Gauge
	problems *prometheus.GaugeVec
}

// NewMetrics registers them.
func NewMetrics(registry prometheus.Registerer, version string) *Metrics {
	m := &Metrics{
		classes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "prism_controller_device_classes", Help: "DeviceClasses of the controller: of MIG profiles, and of resource names.",
		}),
		problems: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "prism_controller_problems", Help: "What people have to mend before all resource names are as configured, by reason.",
		}, []string{"reason"}),
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "prism_build_info", Help: "Version of this program, always 1."}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	registry.MustRegister(m.classes, m.problems, info)
	m.planned(&Plan{})
	return m
}

// planned takes over what the last plan came to.
func (m *Metrics) planned(plan *Plan) {
	if m == nil {
		return
	}
	m.classes.Set(float64(len(plan.Classes)))
	counts := map[string]int{}
	for _, problem := range plan.Problems {
		counts[problem.Reason]++
	}
	for _, reason := range Reasons {
		m.problems.WithLabelValues(reason).Set(float64(counts[reason]))
	}
}
