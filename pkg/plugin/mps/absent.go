package mps

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// errNoMPS: no service has ever run.
var errNoMPS = fmt.Errorf("%w: %w", gpu.ErrMPSUnavailable, fs.ErrNotExist)

// NoDaemons is the MPS service of a machine without one.
type NoDaemons struct{}

// Probe returns gpu.ErrMPSUnavailable.
func (NoDaemons) Probe(context.Context) (string, error) { return "", errNoMPS }

// Daemons returns gpu.ErrMPSUnavailable.
func (NoDaemons) Daemons(context.Context, int64) ([]gpu.MPSDaemon, int64, error) {
	return nil, 0, errNoMPS
}

// Start returns gpu.ErrMPSUnavailable.
func (NoDaemons) Start(context.Context, gpu.MPSDaemonID, gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return gpu.MPSDaemon{}, errNoMPS
}

// StartNew returns gpu.ErrMPSUnavailable.
func (NoDaemons) StartNew(context.Context, gpu.MPSDaemonID, gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return gpu.MPSDaemon{}, errNoMPS
}

// Ensure returns gpu.ErrMPSUnavailable.
func (NoDaemons) Ensure(context.Context, gpu.MPSDaemonID, gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return gpu.MPSDaemon{}, errNoMPS
}

// RestoreLimits returns gpu.ErrMPSUnavailable.
func (NoDaemons) RestoreLimits(context.Context, gpu.MPSDaemonID, gpu.MPSDaemonSpec) error {
	return errNoMPS
}

// Limits returns gpu.ErrMPSUnavailable.
func (NoDaemons) Limits(context.Context, gpu.MPSDaemonID) (gpu.MPSLimitsInForce, error) {
	return gpu.MPSLimitsInForce{}, errNoMPS
}

// Stop returns gpu.ErrMPSUnavailable.
func (NoDaemons) Stop(context.Context, gpu.MPSDaemonID) error { return errNoMPS }
