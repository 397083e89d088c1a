package driver

import (
	"maps"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/kube"
)

// The reasons of condition GPUMetricsReady.
const (
	reasonMetricsConfigured = "Configured"
	reasonExporterDisabled  = "ExporterDisabled"
)

// metricsData is `metrics` in the data of a device whose claim has options for metrics. The JSON keys are API.
type metricsData struct {
	// Source is where values come from; empty where the GPU is not there any more.
	Source string `json:"source,omitempty"`
	// Sets are those of the claim and Basic.
	Sets []string `json:"sets"`
	// Interval is what the claim asks for; none where the node's counts.
	Interval string `json:"interval,omitempty"`
}

// basicSet is the group of metrics that every device has.
const basicSet = "Basic"

// withMetrics adds what a result's options for metrics are to the data of its status.
func withMetrics(extra map[string]any, node *gpu.Node, r *checkpoint.Result) map[string]any {
	if r.Metrics == nil {
		return extra
	}
	data := metricsData{Source: metricsSource(node, r), Sets: []string{basicSet}}
	for _, set := range r.Metrics.Sets {
		if !slices.Contains(data.Sets, set) {
			data.Sets = append(data.Sets, set)
		}
	}
	if r.Metrics.Interval > 0 {
		data.Interval = r.Metrics.Interval.String()
	}
	extra = maps.Clone(extra)
	if extra == nil {
		extra = map[string]any{}
	}
	extra[metricsKey] = data
	return extra
}

// metricsSource is the source of a result: the one asked for, else the one that the exporter chooses for its GPU.
func metricsSource(node *gpu.Node, r *checkpoint.Result) string {
	if r.Metrics.Source != "" {
		return r.Metrics.Source
	}
	i := slices.IndexFunc(node.GPUs, func(g gpu.GPU) bool { return g.UUID == r.GPUUUID })
	switch {
	case i < 0:
		return ""
	case node.GPUs[i].HasGPM():
		return "GPM"
	default:
		return "NVML"
	}
}

// metrics is condition GPUMetricsReady of a result; nil without options for metrics.
func (s ClaimStatus) metrics(r *checkpoint.Result) *kube.MetricsCondition {
	switch {
	case r.Metrics == nil:
		return nil
	case !s.Exporter:
		return &kube.MetricsCondition{
			Reason:  reasonExporterDisabled,
			Message: "No metrics are sampled: prism-exporter does not run on the node (chart value exporter.enabled).",
		}
	default:
		return &kube.MetricsCondition{
			Ready: true, Reason: reasonMetricsConfigured,
			// The plugin knows the chart's value alone, not what an exporter does.
			Message: "The options of the claim are recorded for prism-exporter, which is enabled on GPU nodes; metric prism_gpu_up says " +
				"whether it samples the GPU.",
		}
	}
}
