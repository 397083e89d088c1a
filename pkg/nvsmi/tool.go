package nvsmi

import (
	"context"
	"fmt"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Timeout is how long one run may take. Without persistence mode the driver initialises every GPU of the node for it.
const Timeout = 15 * time.Second

// Install is where a driver installation has its tool, as this process sees it.
type Install struct {
	// Program is nvidia-smi, empty where there is none.
	Program string
	// Library is the NVML library that fits the loaded driver.
	Library string
	// Root is the driver root on the host, for people.
	Root string
}

// Tool is nvidia-smi. It is safe for concurrent use. A process has one, which is not copied: it knows which runs have not exited.
type Tool struct {
	// Find returns the installation in use; gpu.ErrDriverNotLoaded without one.
	Find func() (Install, error)
	// Timeout bounds one run; zero means Timeout.
	Timeout time.Duration

	gate gate
	// program runs the program; nil is execute.
	program func(ctx context.Context, install Install, args []string, started func(pid int)) ended
}

// policies are the values of the tool's option.
var policies = map[gpu.Interval]int{gpu.IntervalDefault: 0, gpu.IntervalShort: 1, gpu.IntervalMedium: 2, gpu.IntervalLong: 3}

// SetTimeslice sets how long a process runs on the GPU before the next gets its turn, for all that run on it from then on. It
// runs one program once. A GPU in MIG mode, and one before Volta, has no such setting: *gpu.UnsupportedError. While an earlier run for the
// same GPU has not exited: *RunningError, at once.
func (t *Tool) SetTimeslice(ctx context.Context, id gpu.UUID, interval gpu.Interval) error {
	policy, known := policies[interval]
	if !known {
		return fmt.Errorf("setting the time slices of GPU %s: there is no interval %q", id, interval)
	}
	install, err := t.Find()
	if err != nil {
		return fmt.Errorf("setting the time slices of GPU %s: %w", id, err)
	}
	if install.Program == "" {
		return &gpu.UnsupportedError{
			Feature: fmt.Sprintf("setting the time slices of GPU %s", id),
			Needs:   fmt.Sprintf("nvidia-smi in usr/bin of the driver root %s: install the driver's tools there", install.Root),
		}
	}
	limit := t.Timeout
	if limit == 0 {
		limit = Timeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	out, code, err := t.run(ctx, id, install, "compute-policy", "-i", string(id), fmt.Sprintf("--set-timeslice=%d", policy))
	if err == nil && code != 0 {
		err = answer(id, code, out)
	}
	if err != nil {
		return fmt.Errorf("setting the time slices of GPU %s to %s with %s: %w", id, interval, install.Program, err)
	}
	return nil
}

// errSlow is why a run was ended.
var errSlow = fmt.Errorf("%w; see whether nvidia-smi answers on the node, and reset the GPU or restart the node if it does not", gpu.ErrTimeout)

// The tool's exit codes are NVML's, and few of its own. noLibrary is one of these.
const noLibrary = 12

var codes = map[int]error{
	4: gpu.ErrPermission, 6: gpu.ErrNotFound, 9: gpu.ErrDriverNotLoaded, 10: gpu.ErrTimeout, 15: gpu.ErrLost, 16: gpu.ErrLost,
	19: gpu.ErrInUse, noLibrary: gpu.ErrDriverNotLoaded,
}

// answer words what the tool said when it refused.
func answer(id gpu.UUID, code int, out string) error {
	if code == 3 {
		return &gpu.UnsupportedError{
			Feature: fmt.Sprintf("a time slice of another length on GPU %s (%s)", id, out),
			Needs:   "a GPU of compute capability 7.0 (Volta) or later that is not in MIG mode",
		}
	}
	if kind, known := codes[code]; known {
		return fmt.Errorf("%w (it ended with exit code %d: %s)", kind, code, out)
	}
	return fmt.Errorf("it ended with exit code %d: %s", code, out)
}
