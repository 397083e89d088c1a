package gpu

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
