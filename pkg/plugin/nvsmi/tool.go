package nvsmi

import (
	"context"
	"fmt"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Timeout limits one run. Without persistence mode, the driver initialises every GPU of the node for a run.
const Timeout = 15 * time.Second

// Install is a driver installation with nvidia-smi. Program and Library are paths of this process.
type Install struct {
	// Program is the path of nvidia-smi, empty if it does not exist.
	Program string
	// Library is the NVML library of the loaded driver.
	Library string
	// Root is the driver root on the host; Dirs lists the directories that were searched in it. Both are for error messages.
	Root, Dirs string
}

// Tool runs nvidia-smi. It is safe for concurrent use. Use one Tool in a process and do not copy it, because it tracks the in-flight runs.
type Tool struct {
	// Find returns the installation in use; gpu.ErrDriverNotLoaded without one.
	Find func() (Install, error)
	// Timeout bounds one run; zero means Timeout.
	Timeout time.Duration

	inFlight inFlight
	// program executes the program; nil means execute.
	program func(ctx context.Context, install Install, args []string, started func(pid int)) result
}

// policies are the values of --set-timeslice.
var policies = map[gpu.Interval]int{gpu.IntervalDefault: 0, gpu.IntervalShort: 1, gpu.IntervalMedium: 2, gpu.IntervalLong: 3}

// SetTimeslice sets the time-slice interval of the GPU, for all processes that run on it from then on. It runs one program once.
// *gpu.UnsupportedError: the GPU is in MIG mode or older than Volta, or nvidia-smi is missing or does not support it. *RunningError, at
// once: an earlier run for the same GPU has not exited.
func (t *Tool) SetTimeslice(ctx context.Context, id gpu.UUID, interval gpu.Interval) error {
	policy, known := policies[interval]
	if !known {
		return fmt.Errorf("setting the time-slice interval of GPU %s: unsupported interval %q", id, interval)
	}
	install, err := t.Find()
	if err != nil {
		return fmt.Errorf("setting the time-slice interval of GPU %s: %w", id, err)
	}
	if install.Program == "" {
		return &gpu.UnsupportedError{
			Feature: fmt.Sprintf("setting the time-slice interval of GPU %s", id),
			Needs: fmt.Sprintf("nvidia-smi in the driver root %s (in %s): install the driver's tools there, or add their directory with "+
				"--driver-search-dirs (chart value nvidiaSearchDirs)", install.Root, install.Dirs),
		}
	}
	limit := t.Timeout
	if limit == 0 {
		limit = Timeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer cancel()
	out, code, err := t.run(ctx, id, install, "compute-policy", "-i", string(id), fmt.Sprintf("--set-timeslice=%d", policy))
	if err == nil && code != 0 {
		err = exitError(id, code, out)
	}
	if err != nil {
		return fmt.Errorf("setting the time-slice interval of GPU %s to %s with %s: %w", id, interval, install.Program, err)
	}
	return nil
}

// errTimeout is the cause if a run was killed because it took too long.
var errTimeout = fmt.Errorf("%w; check whether nvidia-smi works on the node, and reset the GPU or restart the node if it does not", gpu.ErrTimeout)

// The exit codes of nvidia-smi are the return codes of NVML and a few others, such as noLibrary: NVML could not be loaded.
const noLibrary = 12

var codes = map[int]error{
	4: gpu.ErrPermission, 6: gpu.ErrNotFound, 9: gpu.ErrDriverNotLoaded, 10: gpu.ErrTimeout, 15: gpu.ErrLost, 16: gpu.ErrLost,
	19: gpu.ErrInUse, noLibrary: gpu.ErrDriverNotLoaded,
}

// exitError returns the error for an exit code other than 0; out is the first printed line.
func exitError(id gpu.UUID, code int, out string) error {
	if code == 2 {
		// "A supplied argument or flag is invalid" (nvidia-smi's manual). The arguments are always the same, so this version does not
		// support them.
		return &gpu.UnsupportedError{
			Feature: fmt.Sprintf("compute-policy --set-timeslice in the nvidia-smi of this node, for GPU %s (%s)", id, out),
			Needs:   "nvidia-smi of driver 455 or later",
		}
	}
	if code == 3 {
		return &gpu.UnsupportedError{
			Feature: fmt.Sprintf("a time-slice interval other than the default on GPU %s (%s)", id, out),
			Needs:   "a GPU of compute capability 7.0 (Volta) or later that is not in MIG mode",
		}
	}
	if kind, known := codes[code]; known {
		return fmt.Errorf("%w (nvidia-smi exited with code %d: %s)", kind, code, out)
	}
	return fmt.Errorf("nvidia-smi exited with code %d: %s", code, out)
}
