package usage

import (
	"maps"
	"slices"
	"strings"
)

// family is a family of metrics.
type family int

const (
	other family = iota
	gpu
	mig
	container
	allocation
)

// value is a value of a family.
type value int

const (
	info value = iota
	up
	utilization
	memoryUsed
	memoryTotal
	power
)

// metric is a metric of the exporter.
type metric struct {
	family family
	value  value
}

// metrics are the metrics that are read, by name.
var metrics = map[string]metric{
	"prism_gpu_up":                           {gpu, up},
	"prism_gpu_utilization_ratio":            {gpu, utilization},
	"prism_gpu_memory_used_bytes":            {gpu, memoryUsed},
	"prism_gpu_memory_total_bytes":           {gpu, memoryTotal},
	"prism_gpu_power_usage_watts":            {gpu, power},
	"prism_mig_utilization_ratio":            {mig, utilization},
	"prism_mig_memory_total_bytes":           {mig, memoryTotal},
	"prism_gpu_allocation_info":              {allocation, info},
	"prism_container_gpu_utilization_ratio":  {container, utilization},
	"prism_container_gpu_memory_used_bytes":  {container, memoryUsed},
	"prism_container_gpu_memory_total_bytes": {container, memoryTotal},
}

// selector selects all metrics that are read.
var selector = `{__name__=~"` + strings.Join(slices.Sorted(maps.Keys(metrics)), "|") + `"}`
