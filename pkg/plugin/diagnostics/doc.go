// Package diagnostics exposes the state of a plugin process: Prometheus metrics in a registry of its own, the probes /healthz and /readyz,
// and optionally /debug/pprof. Requests read only memory: they call neither the NVIDIA driver nor the API server.
package diagnostics
