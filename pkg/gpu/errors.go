package gpu

import (
	"errors"
	"fmt"
)

// Adapters translate vendor codes into these. Callers test with errors.Is.
var (
	// ErrNotFound: no such GPU, device, library or file.
	ErrNotFound = errors.New("not found")
	// ErrInUse: another user holds it; a retry may help.
	ErrInUse = errors.New("in use")
	// ErrLost: the GPU fell off the bus or needs a reset.
	ErrLost = errors.New("GPU is lost")
	// ErrDriverNotLoaded: no NVIDIA kernel driver, or no user-space library that fits it.
	ErrDriverNotLoaded = errors.New("NVIDIA driver is not loaded")
	// ErrTimeout: the driver did not answer within the deadline of one call.
	ErrTimeout = errors.New("no answer within the deadline")
	// ErrPermission: the caller may not do this.
	ErrPermission = errors.New("permission denied")
)

// UnsupportedError is returned if driver or hardware can never do the requested operation.
type UnsupportedError struct {
	// Feature is the requested one: "nvmlDeviceGetMemoryInfo_v2".
	Feature string
	// Needs is the least that would do: "driver 470 or later".
	Needs string
}

// Error names the feature and its requirements.
func (e *UnsupportedError) Error() string {
	if e.Needs == "" {
		return fmt.Sprintf("%s is not supported here", e.Feature)
	}
	return fmt.Sprintf("%s is not supported here: it needs %s", e.Feature, e.Needs)
}

// ErrDriverReplaced says that the user-space library on disk is another one than the process has loaded. A process binds the library
// once, so only a new process can use the new one.
var ErrDriverReplaced = errors.New("NVIDIA driver library was replaced")
