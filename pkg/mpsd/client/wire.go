package client

import "github.com/prism-gpu/prism/pkg/gpu"

// Info describes the MPS service.
type Info struct {
	// Version is that of the program.
	Version string `json:"version"`
	// Driver is the version of the NVIDIA driver whose control daemon is started next; empty where it is unknown.
	Driver string `json:"driver,omitempty"`
	// Error is why no control daemon can be started; empty where one can.
	Error string `json:"error,omitempty"`
}

// List is the answer to a request for all control daemons.
type List struct {
	Daemons []gpu.MPSDaemon `json:"daemons"`
	// Revision is greater after every change, also across restarts of the service.
	Revision int64 `json:"revision"`
}

// Failure is the answer to a request that failed. A kind that the client does not know is an error without a kind.
type Failure struct {
	Error string `json:"error"`
	Kind  Kind   `json:"kind,omitempty"`
	// PIDs are the clients' on the host, of KindClients.
	PIDs []int `json:"pids,omitempty"`
	// Feature and Needs are those of KindUnsupported.
	Feature string `json:"feature,omitempty"`
	Needs   string `json:"needs,omitempty"`
}

// Kind is what a caller distinguishes of a failure.
type Kind string

// The kinds of failures.
const (
	// KindClients: clients are connected; a *gpu.MPSClientsError.
	KindClients Kind = "Clients"
	// KindUnstoppable: a process was killed and has not exited; gpu.ErrInUse.
	KindUnstoppable Kind = "Unstoppable"
	// KindNotFound: there is no such control daemon; gpu.ErrNotFound.
	KindNotFound Kind = "NotFound"
	// KindDriver: no driver is installed; gpu.ErrDriverNotLoaded.
	KindDriver Kind = "Driver"
	// KindTimeout: the control daemon did not answer; gpu.ErrTimeout.
	KindTimeout Kind = "Timeout"
	// KindUnsupported: the driver has no MPS; a *gpu.UnsupportedError.
	KindUnsupported Kind = "Unsupported"
)

// kinds are the errors of kinds that have no fields.
var kinds = map[Kind]error{
	KindUnstoppable: gpu.ErrInUse, KindNotFound: gpu.ErrNotFound, KindDriver: gpu.ErrDriverNotLoaded, KindTimeout: gpu.ErrTimeout,
}

// err is the failure as an error of package gpu.
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

// failed is an error with the service's sentence.
type failed struct {
	text string
	kind error
}

// Error is the service's sentence.
func (f *failed) Error() string { return f.text }

// Unwrap is what a caller distinguishes, nil for other failures.
func (f *failed) Unwrap() error { return f.kind }
