package classes

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/events"
)

// maxNote is the API's limit for the note of an Event, in bytes.
const maxNote = 1024

// reportProblems records an Event for each new problem, and again if a fixed problem recurs: on the ConfigMap, and on the DeviceClass or
// the Node with the problem. Without a ConfigMap about is the Lease, which users do not inspect: it only gets Events about no other object.
func (r *Reconciler) reportProblems(about runtime.Object, classes []resourceapi.DeviceClass, problems []Problem) {
	current := map[Problem]bool{}
	for _, problem := range problems {
		current[problem] = true
		if !r.reported[problem] {
			for _, object := range r.objectsOf(problem, about, classes) {
				r.Events.Eventf(object, nil, corev1.EventTypeWarning, problem.Reason, events.ActionReconcile, "%s", shorten(problem.Note))
			}
		}
	}
	r.reported = current
}

// objectsOf are the objects on which a problem is recorded.
func (r *Reconciler) objectsOf(problem Problem, about runtime.Object, classes []resourceapi.DeviceClass) []runtime.Object {
	var objects []runtime.Object
	if problem.Class != "" {
		var uid types.UID
		for i := range classes {
			if classes[i].Name == problem.Class {
				uid = classes[i].UID
			}
		}
		objects = append(objects, classReference(problem.Class, uid))
	}
	if problem.Node != "" {
		// The kubelet refers to its Node in this way: tools select Events by that UID.
		objects = append(objects, &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: problem.Node, UID: types.UID(problem.Node)})
	}
	if r.ConfigMap.Name != "" || len(objects) == 0 {
		objects = append(objects, about)
	}
	return objects
}

// shorten truncates a note to at most maxNote bytes of whole characters.
func shorten(s string) string {
	if len(s) <= maxNote {
		return s
	}
	return strings.ToValidUTF8(s[:maxNote], "")
}

// Metrics are the controller's Prometheus metrics.
type Metrics struct {
	classes  prometheus.Gauge
	problems *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer, version string) *Metrics {
	m := &Metrics{
		classes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "prism_controller_device_classes", Help: "DeviceClasses that the controller manages, for MIG profiles and extended resource names.",
		}),
		problems: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "prism_controller_problems", Help: "Problems of DeviceClasses that an operator must fix, by reason of the Event.",
		}, []string{"reason"}),
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "prism_build_info", Help: "Version of the program, as a label of the constant 1."}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	registry.MustRegister(m.classes, m.problems, info)
	m.planned(&Plan{})
	return m
}

// planned sets the metrics from the last plan.
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
