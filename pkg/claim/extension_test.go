package claim

import (
	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// mpsOf, metricsIn, profileIn and isProfiled return the data of the extensions; nil or false without.
func mpsOf(r *Result) *MPSUse {
	use, _ := r.Extensions[KindMPS].(*MPSUse)
	return use
}

func metricsIn(r *Result) *gpu.MetricsOptions {
	m, _ := r.Extensions[KindMetrics].(*gpu.MetricsOptions)
	return m
}

func profileIn(p *Plan) *v1alpha1.ProfilerConfig {
	c, _ := p.Extensions[KindProfile].(*v1alpha1.ProfilerConfig)
	return c
}

func isProfiled(r *Result) bool { return r.Extensions[KindProfile] != nil }

// extended are the extensions of a node with or without the exporter and a profiler.
func extended(exporter bool, profiler Profiler) []PlanExtension {
	return []PlanExtension{MPSExtension{}, MetricsExtension{Exporter: exporter, NodeName: nodeName}, ProfileExtension{Profiler: profiler, NodeName: nodeName}}
}
