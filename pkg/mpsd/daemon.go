package mpsd

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"

	"github.com/go-logr/logr"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/mpsd/state"
)

// daemon is one control daemon. The lock guards all fields except the ones that publish sets.
type daemon struct {
	service *Service
	id      gpu.MPSDaemonID
	dir     directory
	logger  logr.Logger
	busy    chan struct{}

	state  state.State
	status gpu.MPSDaemonState
	// problem says why the daemon is not running.
	problem string
	// lastExit is how the last process exited that was not stopped.
	lastExit string
	// exit receives the wait status of the process when it exits; nil if an earlier service has started it.
	exit <-chan syscall.WaitStatus

	// view, driver and published are guarded by the service's mutex.
	view      gpu.MPSDaemon
	driver    state.Driver
	published bool
}

// lock waits for other requests and locks the daemon.
func (d *daemon) lock(ctx context.Context) error {
	select {
	case d.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for another request for control daemon %s: %w", d.id, context.Cause(ctx))
	}
}

func (d *daemon) release() { <-d.busy }

// describe returns the description of the daemon for clients.
func (d *daemon) describe() gpu.MPSDaemon {
	return gpu.MPSDaemon{
		ID: d.id, Spec: d.state.Spec, State: d.status, PID: d.state.Daemon.PID, Servers: d.state.Servers, MultiUser: d.state.MultiUser,
		Starts: d.state.Starts, Error: d.problem, LastExit: d.lastExit,
	}
}

// set changes the reported state of the daemon.
func (d *daemon) set(status gpu.MPSDaemonState, problem string) {
	d.status, d.problem = status, problem
	d.service.publish(d, true)
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

// running reports whether the process has not exited.
func running(p hostfs.Process) bool {
	now, exists := processes.Process(p.PID)
	return exists && now == p
}

// adopt takes over the daemon of an earlier service. It is called once, before any request.
func (d *daemon) adopt(ctx context.Context) {
	var err error
	if d.state, err = state.Read(d.dir.state()); err != nil {
		d.logger.Error(err, "State of a control daemon is lost; its processes are killed when it is started or stopped")
	}
	if !running(d.state.Daemon) || d.state.Phase == state.Starting || d.state.Phase == "" {
		d.died(ctx, "it exited while the MPS service was not running, or its start was interrupted")
		return
	}
	d.refresh()
	if d.state.Phase == state.Ready {
		if err := d.dir.connectClients(d.service.System); err != nil {
			d.logger.Error(err, "Clients may not find the control daemon")
		}
	}
	d.set(gpu.MPSRunning, "")
	d.watch(ctx, d.state.Daemon)
	d.watchServers(ctx)
	d.logger.Info("Adopted a running control daemon", "pid", d.state.Daemon.PID, "starts", d.state.Starts)
}

// refresh removes servers that have exited.
func (d *daemon) refresh() {
	var present []hostfs.Process
	var pids []int
	for _, p := range d.state.Processes {
		if running(p) {
			present, pids = append(present, p), append(pids, p.PID)
		}
	}
	d.state.Processes, d.state.Servers = present, pids
}

// watch reports the exit of the daemon.
func (d *daemon) watch(ctx context.Context, p hostfs.Process) {
	d.after(ctx, p, func(ctx context.Context) {
		if d.status != gpu.MPSRunning || d.state.Daemon != p {
			return // it was stopped, or started again
		}
		d.hasExited(ctx)
	})
}

// hasExited ends the servers of a daemon whose process has exited by itself.
func (d *daemon) hasExited(ctx context.Context) {
	d.logger.Error(nil, "Control daemon exited; its servers are killed", "pid", d.state.Daemon.PID)
	d.died(ctx, d.exited()+logEnd(d.dir.daemonLog(), 0))
}

// exited describes how the daemon exited. It must have exited.
func (d *daemon) exited() string {
	if d.exit == nil {
		return "it exited with an unknown status, because an earlier process of the MPS service had started it"
	}
	return exitOf(<-d.exit)
}

// exitOf describes how a process exited.
func exitOf(status syscall.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("it was killed by signal %d (%s)", int(status.Signal()), status.Signal())
	}
	return fmt.Sprintf("it exited with code %d", status.ExitStatus())
}

// watchServers reports the exit of servers.
func (d *daemon) watchServers(ctx context.Context) {
	for _, p := range d.state.Processes {
		d.after(ctx, p, func(context.Context) {
			before := len(d.state.Processes)
			if d.refresh(); d.status != gpu.MPSRunning || len(d.state.Processes) == before {
				return
			}
			d.logger.Info("MPS server exited", "pid", p.PID)
			if err := d.save(); err != nil {
				d.logger.Error(err, "State of a control daemon is not up to date")
			}
			d.service.publish(d, true)
		})
	}
}

// after calls then, locked like a request, when the process has exited.
func (d *daemon) after(ctx context.Context, p hostfs.Process, then func(ctx context.Context)) {
	ctx = context.WithoutCancel(ctx) // the request's context may end first
	done, err := exited(p)
	if err != nil {
		d.logger.Error(err, "Exit of a process will not be noticed", "pid", p.PID)
		return
	}
	go func() {
		select {
		case <-done:
		case <-d.service.stopped:
			return
		}
		if d.lock(ctx) == nil {
			defer d.release()
			then(ctx)
		}
	}()
}

// died is dead for a daemon that was not stopped: the next one is reported with that problem, whatever starts it.
func (d *daemon) died(ctx context.Context, problem string) {
	d.lastExit = problem
	d.dead(ctx, problem)
}

// dead ends the remaining processes of a daemon that does not run.
func (d *daemon) dead(ctx context.Context, problem string) {
	if err := d.end(ctx); err != nil {
		d.logger.Error(err, "Processes of a control daemon have not exited")
		d.set(gpu.MPSUnstoppable, err.Error())
		return
	}
	d.set(gpu.MPSDead, problem)
}
