package plugin

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// errNoMPS: no service has ever run.
var errNoMPS = fmt.Errorf("%w: %w", gpu.ErrMPSUnavailable, fs.ErrNotExist)

// noDaemons is the MPS service of a machine without one.
type noDaemons struct{}

func (noDaemons) Probe(context.Context) (string, error) { return "", errNoMPS }

func (noDaemons) Daemons(context.Context, int64) ([]gpu.MPSDaemon, int64, error) {
	return nil, 0, errNoMPS
}

func (noDaemons) Start(context.Context, gpu.MPSDaemonID, gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return gpu.MPSDaemon{}, errNoMPS
}

func (noDaemons) StartNew(context.Context, gpu.MPSDaemonID, gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return gpu.MPSDaemon{}, errNoMPS
}

func (noDaemons) Ensure(context.Context, gpu.MPSDaemonID, gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return gpu.MPSDaemon{}, errNoMPS
}

func (noDaemons) RestoreLimits(context.Context, gpu.MPSDaemonID, gpu.MPSDaemonSpec) error {
	return errNoMPS
}

func (noDaemons) Limits(context.Context, gpu.MPSDaemonID) (gpu.MPSLimitsInForce, error) {
	return gpu.MPSLimitsInForce{}, errNoMPS
}

func (noDaemons) Stop(context.Context, gpu.MPSDaemonID) error { return errNoMPS }
