// Package usage sums up how busy GPUs are, by GPU, pod and namespace. It reads the metrics prism_* from Prometheus, or from exporter pods through
// the API server.
package usage
