package claimmetrics

import (
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// conditionReady is the condition of devices whose claim contains a GPUMetricsConfig.
const conditionReady = "GPUMetricsReady"

var _ driver.StatusExtension = Extension{}

// dataKey is the extension's key in the data of a device.
const dataKey = "metrics"

// The reasons of condition GPUMetricsReady.
const (
	reasonMetricsConfigured = "Configured"
	reasonExporterDisabled  = "ExporterDisabled"
)

// metricsData is `metrics` in the data of a device whose claim contains options for metrics. The JSON keys are API.
type metricsData struct {
	// Source is the source of the values; empty if the GPU is not there any more.
	Source string `json:"source,omitempty"`
	// Sets are the sets of the claim, and Basic.
	Sets []string `json:"sets"`
	// Interval is the claim's interval; empty if the node's interval counts.
	Interval string `json:"interval,omitempty"`
}

// StatusData returns a result's options for metrics as they are in force.
func (m Extension) StatusData(node *gpu.Node, _ *checkpoint.Record, r *checkpoint.Result) map[string]any {
	options, err := checkpoint.ExtensionOf[gpu.MetricsOptions](r.Extensions, claim.KindMetrics)
	if options == nil || err != nil {
		return nil
	}
	data := metricsData{Source: metricsSource(node, r, options), Sets: []string{gpu.MetricsBasic}}
	for _, set := range options.Sets {
		if !slices.Contains(data.Sets, set) {
			data.Sets = append(data.Sets, set)
		}
	}
	if options.Interval > 0 {
		data.Interval = options.Interval.String()
	}
	return map[string]any{dataKey: data}
}

// metricsSource is the source of a result: the one asked for, else the one that the exporter chooses for its GPU.
func metricsSource(node *gpu.Node, r *checkpoint.Result, options *gpu.MetricsOptions) string {
	if options.Source != "" {
		return options.Source
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

// ConditionTypes is GPUMetricsReady.
func (Extension) ConditionTypes() []string { return []string{conditionReady} }

// StatusConditions returns GPUMetricsReady.
func (m Extension) StatusConditions(*checkpoint.Record) []kube.Condition {
	switch {
	case !m.Exporter:
		return []kube.Condition{{
			Type: conditionReady, Reason: reasonExporterDisabled,
			Message: "No metrics are sampled: prism-exporter does not run on the node (chart value exporter.enabled).",
		}}
	default:
		return []kube.Condition{{
			Type: conditionReady, True: true, Reason: reasonMetricsConfigured,
			// The plugin knows only the chart's value, not the state of an exporter.
			Message: "The options of the claim are recorded for prism-exporter, which is enabled on GPU nodes; metric prism_gpu_up says " +
				"whether it samples the GPU.",
		}}
	}
}
