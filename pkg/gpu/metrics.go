package gpu

import "time"

// The sets of metrics, as GPUMetricsConfig and the exporter's --sets name them. MetricsProcesses contains no fields: it shows the processes
// themselves.
const (
	MetricsBasic       = "Basic"
	MetricsUtilization = "Utilization"
	MetricsMemory      = "Memory"
	MetricsPower       = "Power"
	MetricsClocks      = "Clocks"
	MetricsPCIe        = "PCIe"
	MetricsNVLink      = "NVLink"
	MetricsECC         = "ECC"
	MetricsThrottle    = "Throttle"
	MetricsProcesses   = "Processes"
	MetricsPipelines   = "Pipelines"
)

// MetricsSets are all sets of metrics.
var MetricsSets = []string{
	MetricsBasic, MetricsUtilization, MetricsMemory, MetricsPower, MetricsClocks, MetricsPCIe, MetricsNVLink, MetricsECC, MetricsThrottle,
	MetricsProcesses, MetricsPipelines,
}

// MetricsOptions are the exporter's work for a result beyond its work for every device: the GPUMetricsConfig in force, as the claim's record
// stores it.
type MetricsOptions struct {
	// Source is the API's name of the source of values; empty for the exporter's choice.
	Source string `json:"source,omitempty"`
	// Sets are added to the sets of the node for the device; no set twice.
	Sets []string `json:"sets,omitempty"`
	// Interval is the longest time between samples that the claim accepts; 0 for the interval of the node.
	Interval time.Duration `json:"interval,omitempty"`
	// Labels are added to the allocation's time series.
	Labels map[string]string `json:"labels,omitempty"`
	// PerProcess splits the container's values by command.
	PerProcess bool `json:"perProcess,omitempty"`
	// ExposeInContainer writes the claim's metrics to a file in its containers.
	ExposeInContainer bool `json:"exposeInContainer,omitempty"`
}
