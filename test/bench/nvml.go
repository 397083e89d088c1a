package bench

import (
	"fmt"

	"github.com/prism-gpu/prism/test/simgpu/daemon"
	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// NVML is the simulated driver of the node, which counts what each process calls.
type NVML struct{ paths layout.Paths }

// OpenNVML finds the driver below its root directory.
func OpenNVML(root string) (NVML, error) {
	install, err := layout.Open(root)
	if err != nil {
		return NVML{}, err
	}
	return NVML{install.Paths}, nil
}

// Calls returns how many NVML calls the process has made so far.
func (n NVML) Calls(pid int) (int, error) {
	answer, err := daemon.Send(n.paths, daemon.Command{State: true})
	if err != nil {
		return 0, fmt.Errorf("counting the NVML calls of process %d: %w", pid, err)
	}
	for _, p := range answer.State.Calls {
		if p.PID == pid {
			return int(p.Total), nil
		}
	}
	return 0, fmt.Errorf("counting the NVML calls of process %d: the driver does not know it", pid)
}

// Take says how long the driver takes for changes from now on.
func (n NVML) Take(latency model.MIGLatency) error {
	if _, err := daemon.Send(n.paths, daemon.Command{MIGLatency: &latency}); err != nil {
		return fmt.Errorf("setting the time of the simulated driver: %w", err)
	}
	return nil
}
