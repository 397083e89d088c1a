// Package library loads the NVIDIA driver's library libnvidia-ml.so.1 and calls it with deadlines. It is what pkg/nvml and
// pkg/nvml/sampling have in common, and speaks go-nvml and no other vendor's package.
package library
