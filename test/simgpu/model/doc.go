// Package model is the simulated GPU node as plain Go: boards as data, GPUs
// with stable identities, a driver that can be loaded and unloaded, sessions
// that see only some GPUs, injected faults, XID events and call counters.
//
// It fails like a real driver: every error is an NVML return code. The package
// uses no sockets, files or C; it is deterministic for one Spec, and safe for
// concurrent use.
package model
