// Package sampling reads what the NVIDIA driver measures, through NVML and its GPU performance monitoring (GPM), never the performance
// monitor that profilers need. Values leave it in base units; what has no value is absent and never 0.
//
// A round on a GPU costs at most 20 calls, and 8 more for each MIG device and one for each place that a MIG device can have: what NVML can
// answer together is one call, what a GPU does not support is not asked again, and what rarely changes is read by rotation.
package sampling
