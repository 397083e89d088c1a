package bench

import (
	"fmt"

	"github.com/prism-gpu/prism/test/simgpu/daemon"
	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// NVML is the simulated driver of the node, which counts the calls of each process.
type NVML struct{ paths layout.Paths }

// OpenNVML finds the driver below its root directory.
func OpenNVML(root string) (NVML, error) {
	install, err := layout.Open(root)
	if err != nil {
		return NVML{}, err
	}
	return NVML{install.Paths}, nil
}

// Calls returns the number of NVML calls of the process so far, without waits for errors.
func (n NVML) Calls(pid int) (int, error) {
	counts, err := n.counts(pid)
	return counts.total(), err
}

// callCounts are calls by function.
type callCounts map[string]uint64

func (c callCounts) total() (n int) {
	for name, count := range c {
		if name != waiting {
			n += int(count)
		}
	}
	return n
}

// waiting is the function that waits for errors of the GPUs. It is called again when its time is over, so its count does not depend on the
// work of its caller.
const waiting = "nvmlEventSetWait_v2"

// counts returns the calls of a process so far.
func (n NVML) counts(pid int) (callCounts, error) {
	answer, err := daemon.Send(n.paths, daemon.Command{State: true})
	if err != nil {
		return nil, fmt.Errorf("counting the NVML calls of process %d: %w", pid, err)
	}
	for _, p := range answer.State.Calls {
		if p.PID == pid {
			return p.Counts, nil
		}
	}
	return nil, fmt.Errorf("counting the NVML calls of process %d: the driver does not know it", pid)
}

// Take sets the time that the driver takes for changes from now on.
func (n NVML) Take(latency model.MIGLatency) error {
	if _, err := daemon.Send(n.paths, daemon.Command{MIGLatency: &latency}); err != nil {
		return fmt.Errorf("setting the time of the simulated driver: %w", err)
	}
	return nil
}
