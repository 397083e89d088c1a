// Package sampling reads metrics of the NVIDIA driver through NVML and its GPU performance monitoring (GPM). It never uses the performance
// monitor that profilers need. Values are in base units; a missing value is absent, never 0.
//
// A round on a GPU costs at most 20 calls, and 8 more for each MIG device: one call reads all values that NVML can return together,
// unsupported calls are not repeated, and values that rarely change are read by rotation.
package sampling
