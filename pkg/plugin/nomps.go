package plugin

import (
	"context"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// noDaemons is the MPS service of a machine without one.
type noDaemons struct{}

func (noDaemons) Probe(context.Context) (string, error) { return "", gpu.ErrMPSUnavailable }

func (noDaemons) Daemons(context.Context, int64) ([]gpu.MPSDaemon, int64, error) {
	return nil, 0, gpu.ErrMPSUnavailable
}

func (noDaemons) Start(context.Context, gpu.MPSDaemonID, gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return gpu.MPSDaemon{}, gpu.ErrMPSUnavailable
}

func (noDaemons) Ensure(context.Context, gpu.MPSDaemonID, gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return gpu.MPSDaemon{}, gpu.ErrMPSUnavailable
}

func (noDaemons) RestoreLimits(context.Context, gpu.MPSDaemonID, gpu.MPSDaemonSpec) error {
	return gpu.ErrMPSUnavailable
}

func (noDaemons) Limits(context.Context, gpu.MPSDaemonID) (gpu.MPSLimitsInForce, error) {
	return gpu.MPSLimitsInForce{}, gpu.ErrMPSUnavailable
}

func (noDaemons) Stop(context.Context, gpu.MPSDaemonID) error { return gpu.ErrMPSUnavailable }
