package nvsmi

import (
	"fmt"
	"sync"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// gate lets one run at a time be outstanding per GPU. A program that waits in the kernel cannot be killed: it keeps a process and a thread
// until the kernel lets it go, and what it was to set may come into force then. So each retry must not add one, and none may overtake it.
type gate struct {
	mu          sync.Mutex
	outstanding map[gpu.UUID]*process
}

// process is an outstanding run; its id is 0 until there is a process.
type process struct{ pid int }

// RunningError refuses a run for a GPU while an earlier one has not exited. It is a gpu.ErrTimeout: whether the earlier one sets anything
// is not known yet.
type RunningError struct {
	// PID is the process in the plugin's PID namespace; 0 where the program was not started yet.
	PID int
}

// Error says what an operator can do.
func (e *RunningError) Error() string {
	which := "it was not even started"
	if e.PID != 0 {
		which = fmt.Sprintf("process %d of the plugin's container", e.PID)
	}
	return fmt.Sprintf("an earlier run for this GPU has not exited (%s): %v; if the process cannot be killed it waits in the kernel: reset the GPU, "+
		"or restart the node", which, gpu.ErrTimeout)
}

// Unwrap returns gpu.ErrTimeout.
func (*RunningError) Unwrap() error { return gpu.ErrTimeout }

// enter begins a run, or refuses it with a *RunningError.
func (g *gate) enter(id gpu.UUID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if earlier := g.outstanding[id]; earlier != nil {
		return &RunningError{PID: earlier.pid}
	}
	if g.outstanding == nil {
		g.outstanding = map[gpu.UUID]*process{}
	}
	g.outstanding[id] = &process{}
	return nil
}

// started notes the process of a run.
func (g *gate) started(id gpu.UUID, pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.outstanding[id].pid = pid
}

// pid is the process of the outstanding run, 0 where there is none.
func (g *gate) pid(id gpu.UUID) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if run := g.outstanding[id]; run != nil {
		return run.pid
	}
	return 0
}

// leave ends a run.
func (g *gate) leave(id gpu.UUID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.outstanding, id)
}
