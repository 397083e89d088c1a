package gpu

// CounterOptions are the performance counters to record for a claim, as its record stores them.
type CounterOptions struct {
	// GPUs are the GPUs whose counters the claim reserved.
	GPUs []CounterGPU `json:"gpus"`
	// FrequencyHz is the sampling frequency.
	FrequencyHz int32 `json:"frequencyHz"`
	// MetricSet is the profiler's alias of a set of metrics; empty for the first one that the GPUs support.
	MetricSet string `json:"metricSet,omitempty"`
	// Seconds is the maximum length of a recording.
	Seconds int64 `json:"seconds"`
}

// CounterGPU is a GPU whose counters are recorded.
type CounterGPU struct {
	UUID UUID `json:"uuid"`
	// PCIAddress is domain:bus:device.function in lower-case hexadecimal.
	PCIAddress string `json:"pciAddress"`
}
