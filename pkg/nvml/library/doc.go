// Package library loads the NVIDIA driver's library libnvidia-ml.so.1 and calls it with deadlines. pkg/nvml and pkg/exporter/sampling share it.
// Of the vendor's packages it uses only go-nvml.
package library
