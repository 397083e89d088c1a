package gpu

import (
	"errors"
	"fmt"
)

// MPSDaemonID names the MPS control daemon of a GPU or of a MIG device: "a5172723", "a5172723-mig-19-4" (profile and start). It is a
// file name.
type MPSDaemonID string

// MPSDaemonOf is the control daemon of a device: the daemon of its GPU, or of the MIG device.
func MPSDaemonOf(d Device) MPSDaemonID {
	id := d.Parent().ID
	if m, ok := d.(MIGDevice); ok {
		id = fmt.Sprintf("%s-mig-%d-%d", id, m.Profile.ID, m.Placement.Start)
	}
	return MPSDaemonID(id)
}

// MPSDaemonSpec are the settings of a control daemon.
type MPSDaemonSpec struct {
	// GPU is the physical GPU.
	GPU UUID `json:"gpu"`
	// Device is the UUID of the GPU or MIG device that the daemon serves.
	Device string `json:"device"`
	// MemoryMiB is the default memory limit of a client; 0 for none.
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// ActiveThreadPercentage is the default of a client; 0 for none.
	ActiveThreadPercentage int `json:"activeThreadPercentage,omitempty"`
	// ShmBytes is the size of the /dev/shm of the daemon, its servers and clients.
	ShmBytes int64 `json:"shmBytes"`
}

// MPSDaemonState is the present state of a control daemon.
type MPSDaemonState string

// The states of a control daemon.
const (
	// MPSRunning: it accepts clients.
	MPSRunning MPSDaemonState = "Running"
	// MPSDead: it exited and was not stopped.
	MPSDead MPSDaemonState = "Dead"
	// MPSUnstoppable: a process of it was killed and did not exit.
	MPSUnstoppable MPSDaemonState = "Unstoppable"
)

// MPSDaemon is a control daemon as the MPS service reports it.
type MPSDaemon struct {
	ID    MPSDaemonID    `json:"id"`
	Spec  MPSDaemonSpec  `json:"spec"`
	State MPSDaemonState `json:"state"`
	// PID is the daemon's on the host, also after it exited.
	PID int `json:"pid"`
	// Servers are the processes that own the contexts on the device.
	Servers []int `json:"servers,omitempty"`
	// MultiUser: one server is for the clients of all users. Otherwise clients of another user than those connected wait.
	MultiUser bool `json:"multiUser"`
	// Outdated: the driver was replaced since the daemon started.
	Outdated bool `json:"outdated,omitempty"`
	// Starts counts how often the daemon was started since its first client was expected.
	Starts int `json:"starts"`
	// Error is why the daemon is not running; empty if it is.
	Error string `json:"error,omitempty"`
	// LastExit is why the process before this one exited; empty if it was stopped, or there was none.
	LastExit string `json:"lastExit,omitempty"`
}

// MPSLimits are limits of the clients of a control daemon or of one of its servers, as MPS reports them. 0 is no limit.
type MPSLimits struct {
	// MemoryMiB is exact below 1 GiB; from there on MPS reports whole GiB, rounded down.
	MemoryMiB              int64   `json:"memoryMiB"`
	ActiveThreadPercentage float64 `json:"activeThreadPercentage"`
}

// MPSLimitsInForce are the limits of a control daemon, for the servers that it starts, and of its servers by pid.
type MPSLimitsInForce struct {
	Default MPSLimits         `json:"default"`
	Servers map[int]MPSLimits `json:"servers,omitempty"`
}

// ErrMPSUnavailable is the error of a call that the MPS service does not answer.
var ErrMPSUnavailable = errors.New("the MPS service does not answer")

// MPSClientsError says that a control daemon is not stopped while clients are connected.
type MPSClientsError struct {
	// PIDs are the host's PIDs of the clients.
	PIDs []int
}

// Error names the clients.
func (e *MPSClientsError) Error() string {
	return fmt.Sprintf("MPS clients are still connected, with the pids %v on the host", e.PIDs)
}

// Is reports that it is a kind of ErrInUse: the clients may exit.
func (e *MPSClientsError) Is(target error) bool { return target == ErrInUse }
