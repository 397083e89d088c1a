package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Daemons is the MPS service of the node. While it does not answer its errors are gpu.ErrMPSUnavailable.
type Daemons interface {
	// Probe asks once. The other methods repeat a request without answer while the service restarts. The problem is the reason why the
	// service can start no control daemon; empty if it can.
	Probe(ctx context.Context) (problem string, err error)
	// Daemons lists the control daemons. With after > 0 it waits until the revision is greater, or half a minute is over.
	Daemons(ctx context.Context, after int64) (daemons []gpu.MPSDaemon, revision int64, err error)
	// Start starts the control daemon if it does not run, without a server.
	Start(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error)
	// StartNew does that for a device that no claim uses: a daemon with other settings, or that has accepted clients, is replaced, and the files that
	// clients have left are removed. *gpu.MPSClientsError: clients are connected.
	StartNew(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error)
	// Ensure starts the daemon if it does not run, and its server if one server is for all users. A daemon that runs keeps its settings.
	Ensure(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error)
	// RestoreLimits sets the limits of the daemon and of its servers to the spec's limits.
	RestoreLimits(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) error
	// Limits reads them.
	Limits(ctx context.Context, id gpu.MPSDaemonID) (gpu.MPSLimitsInForce, error)
	// Stop ends the daemon and removes its leftovers. *gpu.MPSClientsError: clients are connected. An absent one is no error.
	Stop(ctx context.Context, id gpu.MPSDaemonID) error
}

// Modes returns the open driver; gpu.ErrDriverNotLoaded without one.
type Modes func() (gpu.ComputeModes, error)

// Process reports whether the process with that pid on the host runs, and when it started.
type Process func(pid int) (started uint64, runs bool)

// unavailable is an error of an MPS service that does not answer. A retry may help.
type unavailable struct{ err error }

// Error names the operator's fix, and the cause.
func (e *unavailable) Error() string {
	if errors.Is(e.err, fs.ErrNotExist) { // a service that restarts leaves its socket
		return "no MPS service runs on this node: set the chart value mps.enabled to true, or check the pod of the MPS service on this node"
	}
	if errors.Is(e.err, gpu.ErrTimeout) {
		return fmt.Sprintf("%v; the MPS service is slow or hangs: check the log of its pod on this node, and the load of the node", e.err)
	}
	return fmt.Sprintf("%v; MPS shares need the MPS service on this node, which runs where the chart value mps.enabled is true", e.err)
}

// Unwrap returns the cause.
func (e *unavailable) Unwrap() error { return e.err }

// Is reports that it is a kind of gpu.ErrTimeout: the service may answer later.
func (*unavailable) Is(target error) bool { return target == gpu.ErrTimeout }

// explained adds the operator's fix to the error of a service that does not answer.
func explained(err error) error {
	if errors.Is(err, gpu.ErrMPSUnavailable) {
		return &unavailable{err}
	}
	return err
}
