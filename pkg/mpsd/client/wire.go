package client

import "github.com/prism-gpu/prism/pkg/gpu"

// Info describes the MPS service.
type Info struct {
	// Version is the version of the program.
	Version string `json:"version"`
	// Driver is the version of the NVIDIA driver whose control daemon is started next; empty if it is unknown.
	Driver string `json:"driver,omitempty"`
	// Error says why control daemons cannot be started; empty if they can.
	Error string `json:"error,omitempty"`
}

// List is the answer to a request for all control daemons.
type List struct {
	Daemons []gpu.MPSDaemon `json:"daemons"`
	// Revision increases with every change, also across restarts of the service.
	Revision int64 `json:"revision"`
}

// Failure is the answer to a request that failed. The client treats an unknown kind as an error without a kind.
type Failure struct {
	Error string `json:"error"`
	Kind  Kind   `json:"kind,omitempty"`
	// PIDs are the PIDs of the clients on the host, for KindClients.
	PIDs []int `json:"pids,omitempty"`
	// Feature and Needs describe KindUnsupported.
	Feature string `json:"feature,omitempty"`
	Needs   string `json:"needs,omitempty"`
}

// Kind is the kind of a failure, for callers that distinguish failures.
type Kind string

// The kinds of failures.
const (
	// KindClients: clients are connected; a *gpu.MPSClientsError.
	KindClients Kind = "Clients"
	// KindUnstoppable: a process was killed and has not exited; gpu.ErrInUse.
	KindUnstoppable Kind = "Unstoppable"
	// KindNotFound: the control daemon does not exist; gpu.ErrNotFound.
	KindNotFound Kind = "NotFound"
	// KindDriver: no driver is installed; gpu.ErrDriverNotLoaded.
	KindDriver Kind = "Driver"
	// KindTimeout: the control daemon did not answer; gpu.ErrTimeout.
	KindTimeout Kind = "Timeout"
	// KindUnsupported: the driver does not support MPS; a *gpu.UnsupportedError.
	KindUnsupported Kind = "Unsupported"
)

// kinds maps kinds without further fields to their errors.
var kinds = map[Kind]error{
	KindUnstoppable: gpu.ErrInUse, KindNotFound: gpu.ErrNotFound, KindDriver: gpu.ErrDriverNotLoaded, KindTimeout: gpu.ErrTimeout,
}

// err converts the failure to an error of package gpu.
func (f Failure) err() error {
	switch f.Kind {
	case KindClients:
		return &gpu.MPSClientsError{PIDs: f.PIDs}
	case KindUnsupported:
		return &gpu.UnsupportedError{Feature: f.Feature, Needs: f.Needs}
	default:
		return &failed{text: f.Error, kind: kinds[f.Kind]}
	}
}

// failed is an error with the service's message.
type failed struct {
	text string
	kind error
}

// Error returns the service's message.
func (f *failed) Error() string { return f.text }

// Unwrap returns the error of the kind, nil without a kind.
func (f *failed) Unwrap() error { return f.kind }
