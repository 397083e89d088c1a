package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Command is one request on the control socket; exactly one field is set.
type Command struct {
	State  bool                `json:"state,omitempty"`
	Stop   bool                `json:"stop,omitempty"`
	Unload bool                `json:"unload,omitempty"`
	Load   model.DriverVersion `json:"load,omitempty"`
	Fault  *model.Fault        `json:"fault,omitempty"`
	Lose   *Loss               `json:"lose,omitempty"`
	Health *Health             `json:"health,omitempty"`
	Clear  *int                `json:"clear,omitempty"` // id of a fault; 0: all, with the health of GPUs
	XID    *XID                `json:"xid,omitempty"`
	Reset  *int                `json:"reset,omitempty"` // ordinal of a GPU
	// Replace is the ordinal of a GPU in whose place another one is from the next boot on.
	Replace *int  `json:"replace,omitempty"`
	Work    *Work `json:"work,omitempty"`

	Persistenced *Persistenced     `json:"persistenced,omitempty"`
	MIGLatency   *model.MIGLatency `json:"migLatency,omitempty"`
	SampleHold   *model.SampleHold `json:"sampleHold,omitempty"`
	Hold         *string           `json:"hold,omitempty"`    // UUID of a GPU or MIG device
	Release      *string           `json:"release,omitempty"` // UUID; empty: all
}

// Loss makes a GPU lost.
type Loss struct {
	GPU   int       `json:"gpu"`
	Until time.Time `json:"until,omitzero"`
	// Unlisted: new sessions do not list it.
	Unlisted bool `json:"unlisted,omitempty"`
}

// Health changes the health of a GPU; nil leaves a part as it is.
type Health struct {
	GPU               int                   `json:"gpu"`
	Action            *model.RecoveryAction `json:"action,omitempty"`
	RowRemapPending   *bool                 `json:"rowRemapPending,omitempty"`
	RowRemapFailure   *bool                 `json:"rowRemapFailure,omitempty"`
	RetirementPending *bool                 `json:"retirementPending,omitempty"`
	Fabric            *model.FabricState    `json:"fabric,omitempty"`
}

// Persistenced sets whether nvidia-persistenced keeps a GPU initialised.
type Persistenced struct {
	GPU int  `json:"gpu"`
	On  bool `json:"on"`
}

// XID is an error that a GPU reports.
type XID struct {
	GPU      int     `json:"gpu"`
	Code     uint64  `json:"code"`
	Instance *uint32 `json:"instance,omitempty"` // id of the GPU instance that it belongs to
}

// Work is the load of a GPU or MIG device from now on.
type Work struct {
	UUID   string       `json:"uuid"`
	Script model.Script `json:"script"`
}

// Result is the result of a Command.
type Result struct {
	Error    string          `json:"error,omitempty"`
	Fault    int             `json:"fault,omitempty"`    // id of the injected fault
	Sessions int             `json:"sessions,omitempty"` // with State
	State    *model.Snapshot `json:"state,omitempty"`
}

func (d *Daemon) serveControl(conn *net.UnixConn, stop func()) {
	decoder, encoder := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var command Command
		if err := decoder.Decode(&command); err != nil {
			return
		}
		result, err := d.execute(command)
		d.persister.flush()
		if err != nil {
			result = Result{Error: err.Error()}
		}
		if err := encoder.Encode(result); err != nil {
			return
		}
		if command.Stop {
			stop()
			return
		}
	}
}

func (d *Daemon) execute(c Command) (Result, error) {
	switch {
	case c.State:
		state := d.node.Snapshot()
		return Result{State: &state, Sessions: d.sessions.count()}, nil
	case c.Unload:
		d.node.Unload()
		return Result{}, nil
	case c.Load != "":
		return Result{}, d.node.Load(c.Load)
	case c.Fault != nil:
		id, err := d.node.Faults.Add(*c.Fault)
		return Result{Fault: id}, err
	case c.Lose != nil:
		lose := d.node.LoseGPU
		if c.Lose.Unlisted {
			lose = d.node.RemoveGPU
		}
		id, err := lose(c.Lose.GPU, c.Lose.Until)
		return Result{Fault: id}, err
	case c.Clear != nil:
		return Result{}, d.clear(*c.Clear)
	}
	return Result{}, d.act(c)
}

// act executes the commands on GPUs and their clients.
func (d *Daemon) act(c Command) error {
	switch {
	case c.XID != nil:
		instance := uint32(model.NoInstance)
		if c.XID.Instance != nil {
			instance = *c.XID.Instance
		}
		return d.node.PostInstanceXID(c.XID.GPU, instance, c.XID.Code)
	case c.Work != nil:
		return d.node.SetLoad(c.Work.UUID, c.Work.Script)
	case c.SampleHold != nil:
		return d.node.SetSampleHold(*c.SampleHold)
	case c.Reset != nil:
		return d.reset(*c.Reset)
	case c.Replace != nil:
		return d.node.ReplaceGPU(*c.Replace)
	case c.Health != nil:
		return d.node.ChangeHealth(c.Health.GPU, c.Health.change)
	case c.Persistenced != nil:
		return d.node.SetPersistenced(c.Persistenced.GPU, c.Persistenced.On)
	case c.MIGLatency != nil:
		d.node.SetMIGLatency(*c.MIGLatency)
	case c.Hold != nil:
		return d.holds.add(d.node, *c.Hold)
	case c.Release != nil:
		return d.holds.end(*c.Release)
	}
	return nil
}

func (c *Health) change(h *model.Health) {
	set(&h.Action, c.Action)
	set(&h.RowRemapPending, c.RowRemapPending)
	set(&h.RowRemapFailure, c.RowRemapFailure)
	set(&h.RetirementPending, c.RetirementPending)
	set(&h.Fabric, c.Fabric)
}

func set[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}

// reset resets a GPU as nvidia-smi does.
func (d *Daemon) reset(gpu int) error {
	err := d.node.ResetDetachedGPU(gpu)
	if users := d.sessions.attached(gpu); errors.Is(err, model.InUse) && len(users) > 0 {
		return fmt.Errorf("resetting GPU %d: %w: sessions of %s", gpu, err, strings.Join(users, ", "))
	}
	if err != nil {
		return fmt.Errorf("resetting GPU %d: %w", gpu, err)
	}
	return nil
}

func (d *Daemon) clear(id int) error {
	if id == 0 {
		d.node.Heal()
		return nil
	}
	if !d.node.Faults.Remove(id) {
		return fmt.Errorf("clearing fault %d: no such fault is active", id)
	}
	return nil
}

// Send sends a command to the daemon of a node.
func Send(paths layout.Paths, command Command) (Result, error) {
	conn, err := net.Dial("unix", paths.Control())
	if err != nil {
		return Result{}, fmt.Errorf("connecting to the GPU node at %s: %w", paths.Root, err)
	}
	defer conn.Close()
	return exchange(conn, command)
}

func exchange(conn net.Conn, command Command) (Result, error) {
	var result Result
	err := errors.Join(json.NewEncoder(conn).Encode(command), json.NewDecoder(conn).Decode(&result))
	if err != nil {
		return Result{}, fmt.Errorf("exchanging a command with the daemon: %w", err)
	}
	if result.Error != "" {
		return Result{}, errors.New(result.Error)
	}
	return result, nil
}

// Stop stops the daemon of a node and returns after its process has exited. A node without a daemon is not an error.
func Stop(paths layout.Paths) error {
	conn, err := net.Dial("unix", paths.Control())
	if err != nil {
		return nil //nolint:nilerr // there is no listener: the daemon has exited already
	}
	defer conn.Close()
	caller, err := peer(conn.(*net.UnixConn))
	if err != nil {
		return fmt.Errorf("finding the daemon of the GPU node at %s: %w", paths.Root, err)
	}
	process, err := unix.PidfdOpen(caller.PID, 0)
	if err != nil {
		return fmt.Errorf("finding the daemon of the GPU node at %s: process %d: %w", paths.Root, caller.PID, err)
	}
	defer unix.Close(process)
	if _, err := exchange(conn, Command{Stop: true}); err != nil {
		return fmt.Errorf("stopping the GPU node at %s: %w", paths.Root, err)
	}
	return waitFor(process, stopTimeout)
}

const stopTimeout = 10 * time.Second

// waitFor waits until the process of a pidfd has exited.
func waitFor(process int, timeout time.Duration) error {
	end := time.Now().Add(timeout)
	for time.Now().Before(end) {
		fds := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(time.Until(end).Milliseconds()))
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for the daemon of the GPU node: %w", err)
		}
	}
	return fmt.Errorf("waiting for the daemon of the GPU node: still running after %s", timeout)
}
