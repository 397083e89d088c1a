// Package state is the state of an MPS control daemon: the file that the MPS service writes into the daemon's directory, and that
// prism-exporter reads too.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// Command is the name of the processes of control daemons and servers, as truncated by the kernel. Any process can use it.
const Command = "nvidia-cuda-mps"

// File is the name of the file in the directory of a control daemon.
const File = "state"

// Phase is the progress of the start of a control daemon. A daemon whose start was interrupted before Control has no clients, and is
// started again.
type Phase string

// The phases, in their order.
const (
	// Starting: no client can find the daemon, and its limits may not be set.
	Starting Phase = "starting"
	// Control: the limits of the daemon are set; clients cannot find it.
	Control Phase = "control"
	// Ready: the daemon accepts clients.
	Ready Phase = "ready"
)

// State is the part of a control daemon's state that the next service needs. Other versions may add fields.
type State struct {
	Spec  gpu.MPSDaemonSpec `json:"spec"`
	Phase Phase             `json:"phase"`
	// Daemon is the process of the control daemon, also after it exited. Zero: it was not started yet.
	Daemon hostfs.Process `json:"daemon"`
	// Processes are the servers, and processes that were killed with the daemon and have not exited.
	Processes []hostfs.Process `json:"processes,omitempty"`
	// Servers are the PIDs of servers that the daemon reported.
	Servers   []int  `json:"servers,omitempty"`
	MultiUser bool   `json:"multiUser,omitempty"`
	Driver    Driver `json:"driver"`
	Starts    int    `json:"starts"`
}

// Driver identifies an installed driver: it differs between installations.
type Driver struct {
	Root    string        `json:"root"`
	Version string        `json:"version,omitempty"`
	Library string        `json:"library"`
	File    hostfs.FileID `json:"file"`
}

// Read reads a file; the zero State if there is none.
func Read(path string) (State, error) {
	var s State
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return State{}, fmt.Errorf("reading the state of a control daemon: %w", err)
	}
	return s, nil
}
