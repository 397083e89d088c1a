// Package diagnostics exposes the state of a plugin process: Prometheus metrics in a registry of its own, the probes /healthz and
// /readyz, and optionally /debug/pprof. Each request reads memory alone: neither the NVIDIA driver nor the API server is
// called.
package diagnostics
