package nvsmi

import (
	"fmt"
	"sync"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// inFlight allows one run per GPU at a time. A program that is blocked in the kernel cannot be killed: it occupies a process and a thread
// until the kernel returns, and its setting may come into force only then. So retries must neither add processes nor overtake it.
type inFlight struct {
	mu   sync.Mutex
	runs map[gpu.UUID]*process
}

// process is the process of an in-flight run; pid is 0 until it starts.
type process struct{ pid int }

// RunningError refuses a run for a GPU while an earlier one has not exited. It is a gpu.ErrTimeout, because the outcome of the earlier
// run is unknown.
type RunningError struct {
	// PID is the process ID in the plugin's PID namespace; 0 until the program starts.
	PID int
}

// Error names the process and the ways to end it.
func (e *RunningError) Error() string {
	which := "not started yet"
	if e.PID != 0 {
		which = fmt.Sprintf("process %d of the plugin's container", e.PID)
	}
	return fmt.Sprintf("an earlier run for this GPU has not exited (%s): %v; a process that cannot be killed is blocked in the kernel: reset the GPU "+
		"or restart the node", which, gpu.ErrTimeout)
}

// Unwrap returns gpu.ErrTimeout.
func (*RunningError) Unwrap() error { return gpu.ErrTimeout }

// begin registers a run, or refuses it with a *RunningError.
func (f *inFlight) begin(id gpu.UUID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if earlier := f.runs[id]; earlier != nil {
		return &RunningError{PID: earlier.pid}
	}
	if f.runs == nil {
		f.runs = map[gpu.UUID]*process{}
	}
	f.runs[id] = &process{}
	return nil
}

// started records the process of a run.
func (f *inFlight) started(id gpu.UUID, pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs[id].pid = pid
}

// pid returns the process ID of the in-flight run, 0 without one.
func (f *inFlight) pid(id gpu.UUID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if run := f.runs[id]; run != nil {
		return run.pid
	}
	return 0
}

// end removes a run.
func (f *inFlight) end(id gpu.UUID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.runs, id)
}
