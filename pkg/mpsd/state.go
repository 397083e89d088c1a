package mpsd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// phase is the progress of the start of a control daemon. A daemon whose start was interrupted before phaseControl has no clients, and is
// started again.
type phase string

const (
	// phaseStarting: no client can find the daemon, and its limits may not be set.
	phaseStarting phase = "starting"
	// phaseControl: the limits of the daemon are set; clients cannot find it.
	phaseControl phase = "control"
	// phaseReady: the daemon accepts clients.
	phaseReady phase = "ready"
)

// state is the part of a control daemon's state that the next service needs. Other versions may add fields.
type state struct {
	Spec  gpu.MPSDaemonSpec `json:"spec"`
	Phase phase             `json:"phase"`
	// Daemon is the process of the control daemon, also after it exited. Zero: it was not started yet.
	Daemon hostfs.Process `json:"daemon"`
	// Processes are the servers, and processes that were killed with the daemon and have not exited.
	Processes []hostfs.Process `json:"processes,omitempty"`
	// Servers are the PIDs of servers that the daemon reported.
	Servers   []int    `json:"servers,omitempty"`
	MultiUser bool     `json:"multiUser,omitempty"`
	Driver    identity `json:"driver"`
	Starts    int      `json:"starts"`
}

// readState reads the state in a directory; the zero state if there is none.
func readState(dir directory) (state, error) {
	var s state
	raw, err := os.ReadFile(dir.state())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return state{}, fmt.Errorf("reading the state of a control daemon: %w", err)
	}
	return s, nil
}

// save writes the daemon's state.
func (d *daemon) save() error {
	raw, err := json.Marshal(d.state)
	if err == nil {
		err = d.service.System.Write(d.dir.state(), raw)
	}
	if err != nil {
		return fmt.Errorf("writing the state of a control daemon: %w", err)
	}
	return nil
}
