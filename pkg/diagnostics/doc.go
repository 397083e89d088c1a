// Package diagnostics is what a plugin process shows of itself: Prometheus metrics in a registry of its own, the probes /healthz and
// /readyz, and optionally /debug/pprof. What is shown is read from memory at each request: neither the NVIDIA driver nor the API server is
// asked.
package diagnostics
