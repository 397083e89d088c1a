package mpsd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// stop stops the daemon and removes its directory. While clients are connected, it only returns a *gpu.MPSClientsError.
func (d *daemon) stop(ctx context.Context) error {
	if d.status == gpu.MPSRunning {
		if err := d.quit(ctx); err != nil {
			return err
		}
	}
	if err := d.end(ctx); err != nil {
		d.set(gpu.MPSUnstoppable, err.Error())
		return err
	}
	if err := d.dir.remove(d.service.System); err != nil {
		d.set(gpu.MPSDead, "it was stopped, but its directory cannot be removed: "+err.Error())
		return fmt.Errorf("removing the directory of control daemon %s: %w", d.id, err)
	}
	d.logger.Info("Stopped control daemon", "pid", d.state.Daemon.PID)
	d.service.publish(d, false)
	return nil
}

// quit asks the daemon to exit and waits; then end kills the remaining processes. If the daemon or a server does not answer, it kills them
// at once.
func (d *daemon) quit(ctx context.Context) error {
	clients, err := d.clients(ctx)
	if err != nil {
		d.logger.Error(err, "Control daemon is killed because it does not answer", "pid", d.state.Daemon.PID)
		d.status = gpu.MPSDead
		return nil
	}
	if len(clients) > 0 {
		return &gpu.MPSClientsError{PIDs: clients}
	}
	done, err := exited(d.state.Daemon)
	if err != nil {
		return err
	}
	// From here on its exit is expected.
	d.status, d.lastExit = gpu.MPSDead, ""
	ctx, cancel := context.WithTimeout(ctx, d.service.Times.Quit)
	defer cancel()
	// The exit code does not show whether the command succeeded.
	if _, err := d.command(ctx, "quit"); err != nil {
		d.logger.V(2).Info("Control daemon did not confirm the quit command", "reason", err.Error())
	}
	select {
	case <-done:
	case <-ctx.Done():
		d.logger.Info("Control daemon did not quit in time and is killed", "pid", d.state.Daemon.PID)
	}
	return nil
}

// UnstoppableError is gpu.ErrInUse: processes of a control daemon were killed and have not exited.
type UnstoppableError struct {
	ID   gpu.MPSDaemonID
	PIDs []int
}

// Error names the processes.
func (e *UnstoppableError) Error() string {
	return fmt.Sprintf("processes %v of MPS control daemon %s were killed and have not exited: a process that cannot be killed is blocked in the "+
		"kernel; reset the GPU or restart the node: %v", e.PIDs, e.ID, gpu.ErrInUse)
}

// Unwrap returns gpu.ErrInUse.
func (*UnstoppableError) Unwrap() error { return gpu.ErrInUse }

// endRounds limits the rounds of killing: a daemon may start a server before it is killed itself.
const endRounds = 3

// end kills all processes of the daemon and returns when they have exited, or an *UnstoppableError.
func (d *daemon) end(ctx context.Context) error {
	for range endRounds {
		left, err := d.left()
		if err != nil {
			return err
		}
		if len(left) == 0 {
			d.state.Servers, d.state.Processes = nil, nil
			return nil
		}
		if err := d.kill(ctx, left); err != nil {
			return err
		}
	}
	left, err := d.left()
	if err != nil || len(left) == 0 {
		return err
	}
	return d.unstoppable(left)
}

// kill kills processes and returns when they have exited, or an *UnstoppableError.
func (d *daemon) kill(ctx context.Context, left []hostfs.Process) error {
	// A killed process can be found only by its PID.
	d.state.Processes = slices.DeleteFunc(slices.Clone(left), func(p hostfs.Process) bool { return p == d.state.Daemon })
	if err := d.save(); err != nil {
		return err
	}
	for _, p := range left {
		if err := d.service.System.Kill(p); err != nil {
			return err
		}
	}
	deadline := time.After(d.service.Times.Kill)
	for _, p := range left {
		done, err := exited(p)
		if err != nil {
			return err
		}
		select {
		case <-done:
			continue
		case <-deadline:
		case <-ctx.Done():
		}
		return d.unstoppable(left)
	}
	return nil
}

func (d *daemon) unstoppable(killed []hostfs.Process) error {
	var pids []int
	for _, p := range killed {
		if running(p) {
			pids = append(pids, p.PID)
		}
	}
	return &UnstoppableError{ID: d.id, PIDs: pids}
}

// left returns the processes of the daemon that have not exited. It finds them by their environment, only in its own PID namespace: the
// daemon and its servers inherit both. Containers can put the same entry into an environment, but run in other PID namespaces. User IDs do
// not identify the processes, because a server for one user runs as the user of its client. Neither do cgroups, because a process that is
// blocked in the kernel outlives the container of an earlier service.
func (d *daemon) left() ([]hostfs.Process, error) {
	left, err := processes.ProcessesWith(d.dir.mark())
	if err != nil {
		return nil, err
	}
	for _, p := range append([]hostfs.Process{d.state.Daemon}, d.state.Processes...) {
		if running(p) && !slices.Contains(left, p) {
			left = append(left, p)
		}
	}
	return left, nil
}
