package mpsd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/mpsd/state"
)

// wanted describes what a request wants in addition to a running daemon.
type wanted struct {
	// server: its server must run, too.
	server bool
	// unused: no claim uses the device yet, so nothing of an earlier claim's daemon is kept.
	unused bool
}

// ensure returns when the daemon runs.
func (d *daemon) ensure(ctx context.Context, spec gpu.MPSDaemonSpec, want wanted) error {
	if d.status == gpu.MPSRunning && !running(d.state.Daemon) {
		d.hasExited(ctx) // this request came before the notification
	}
	if d.status == gpu.MPSRunning {
		if err := d.renew(ctx, spec, want.unused); err != nil {
			return err
		}
	}
	if d.status != gpu.MPSRunning {
		if err := d.restart(ctx, spec, want.unused); err != nil {
			return err
		}
	}
	complete := d.state.Phase == state.Ready && (!d.state.MultiUser || len(d.state.Processes) > 0)
	if !want.server || complete {
		return nil
	}
	if err := d.acceptClients(ctx); err != nil {
		return fmt.Errorf("starting the server of MPS control daemon %s: %w", d.id, err)
	}
	return nil
}

// restart ends the remaining processes of a daemon that does not run, and starts it.
func (d *daemon) restart(ctx context.Context, spec gpu.MPSDaemonSpec, unused bool) error {
	if err := d.end(ctx); err != nil {
		d.set(gpu.MPSUnstoppable, err.Error())
		return err
	}
	if d.status == gpu.MPSUnstoppable {
		d.status = gpu.MPSDead
	}
	if unused {
		if err := d.discard(); err != nil {
			return err
		}
	}
	if err := d.start(ctx, spec); err != nil {
		if d.status == gpu.MPSDead {
			d.set(gpu.MPSDead, err.Error()) // the previous daemon was stopped, but is still reported
		}
		return fmt.Errorf("starting MPS control daemon %s: %w", d.id, err)
	}
	return nil
}

// discard removes the directory of an earlier claim: its clients may have put files into it.
func (d *daemon) discard() error {
	if err := d.dir.remove(d.service.System); err != nil {
		return fmt.Errorf("removing files of an earlier MPS control daemon %s: %w", d.id, err)
	}
	d.state = state.State{}
	return nil
}

// renew ends a running daemon that does not fit the request: the driver was replaced, or the daemon belongs to another device or, for a
// device without claims, to an earlier claim. A daemon with clients keeps running.
func (d *daemon) renew(ctx context.Context, spec gpu.MPSDaemonSpec, unused bool) error {
	other := spec.Device != d.state.Spec.Device
	if unused && (spec != d.state.Spec || d.state.Phase != state.Control) { // in that phase no client could find the daemon, so it belongs to the same request
		other = true
	}
	installed, err := d.service.driver()
	if outdated := err == nil && installed.identity() != d.state.Driver; !other && !outdated {
		return nil
	}
	clients, err := d.clients(ctx)
	if err == nil && len(clients) > 0 {
		if other {
			return &gpu.MPSClientsError{PIDs: clients}
		}
		return nil
	}
	d.logger.Info("Stopping the control daemon of an earlier driver, device or claim", "pid", d.state.Daemon.PID, "device", spec.Device)
	return d.quit(ctx)
}

// start starts the daemon, in a directory that may be left from an earlier daemon, and sets its limits. Clients cannot find it yet.
func (d *daemon) start(ctx context.Context, spec gpu.MPSDaemonSpec) error {
	installed, err := d.service.driver()
	if err != nil {
		return err
	}
	if err := d.service.System.MakeDir(string(d.dir), 0o755); err != nil {
		return err
	}
	d.state = state.State{Spec: spec, Phase: state.Starting, Driver: installed.identity(), Starts: d.state.Starts + 1}
	// Saved before anything else is in the directory: the next service lists the daemon with its spec, even if this start is interrupted.
	err = d.save()
	if err == nil {
		err = d.dir.prepare(ctx, d.service.System, spec.ShmBytes, installed)
	}
	if err == nil {
		err = d.run(ctx, installed)
	}
	if err == nil {
		err = d.setDefault(ctx)
	}
	if err == nil {
		d.state.Phase = state.Control
		err = d.save()
	}
	if err != nil {
		d.dead(ctx, err.Error())
		return err
	}
	d.set(gpu.MPSRunning, "")
	d.watch(ctx, d.state.Daemon)
	d.logger.Info("Started control daemon", "pid", d.state.Daemon.PID, "device", spec.Device, "multiUser", d.state.MultiUser, "starts", d.state.Starts)
	return nil
}

// run starts the process, with one server for all users if the driver supports it, and returns when it listens.
func (d *daemon) run(ctx context.Context, installed driver) error {
	tree, err := d.mountTree(installed)
	if err != nil {
		return err
	}
	how := launch{Shm: d.dir.shm(), Hardening: d.service.Hardening, Tree: tree}
	for _, options := range [][]string{{"-multiuser-server"}, nil} {
		d.state.MultiUser = options != nil
		from := logSize(d.dir.daemonLog())
		args, err := how.arguments(d.service.Program, installed.control, append([]string{"-f"}, options...)...)
		if err != nil {
			return err
		}
		started, err := d.service.System.Start(Command{
			Path: d.service.Program, Args: args, Env: d.dir.environment(installed, d.state.Spec.Device), Stdin: d.dir.stdin(), Log: d.dir.daemonLog(),
		})
		if err != nil {
			return err
		}
		d.state.Daemon, d.exit = started.Process, started.Exit
		if err := d.save(); err != nil {
			return err
		}
		code, err := d.listening(ctx, started, from)
		if err == nil {
			return nil
		}
		// A driver without the option starts the user interface instead.
		if options == nil || code != 1 || !strings.Contains(logAfter(d.dir.daemonLog(), from), "Cannot find MPS control daemon process") {
			return err
		}
	}
	return nil
}

// longestPoll is the longest time between two checks.
const longestPoll = 50 * time.Millisecond

// listening waits until the daemon answers, or exits. It returns the exit code, -1 for none.
func (d *daemon) listening(ctx context.Context, started *Started, from int64) (code int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.service.Times.Start, fmt.Errorf("it does not listen: %w", gpu.ErrTimeout))
	defer cancel()
	for wait := d.service.Times.Poll; ; wait = min(2*wait, longestPoll) {
		// Only the daemon's program creates the socket, so the process no longer executes the service's own program.
		if _, err := os.Lstat(filepath.Join(d.dir.pipe(), "control_privileged")); err == nil {
			if output, err := d.command(ctx, lastCommand); err == nil && isPercentage(strings.TrimSpace(output)) {
				return -1, nil
			}
		}
		select {
		case status := <-started.Exit:
			return status.ExitStatus(), errors.New(exitOf(status) + logEnd(d.dir.daemonLog(), from))
		case <-ctx.Done():
			return -1, fmt.Errorf("%w%s", context.Cause(ctx), logEnd(d.dir.daemonLog(), from))
		case <-time.After(wait):
		}
	}
}

// acceptClients starts the server if one serves all users, so that no program can use the GPU outside MPS, and links the sockets.
func (d *daemon) acceptClients(ctx context.Context) error {
	if d.state.MultiUser {
		if err := d.startServer(ctx); err != nil {
			return err
		}
	}
	d.state.Phase = state.Ready
	if err := d.save(); err != nil {
		return err
	}
	d.service.publish(d, true)
	// If this service is killed here, the next one links them.
	return d.dir.connectClients(d.service.System)
}

// startServer starts the server and returns when it owns the GPU.
func (d *daemon) startServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.service.Times.Start, fmt.Errorf("it does not become active: %w", gpu.ErrTimeout))
	defer cancel()
	from := logSize(d.dir.daemonLog())
	for wait := d.service.Times.Poll; ; wait = min(2*wait, longestPoll) {
		servers, active, err := d.activeServer(ctx)
		if err == nil && active {
			return d.record(ctx, servers)
		}
		if len(servers) == 0 && strings.Contains(logAfter(d.dir.daemonLog(), from), "exited with status") {
			return fmt.Errorf("it exited: %s; %s", lastLines(d.dir.daemonLog(), from), lastLines(d.dir.serverLog(), 0))
		}
		if err == nil && len(servers) == 0 {
			// While a server is starting, the daemon does not start a second one.
			_, err = d.command(ctx, "start_server -uid 0")
		}
		if err == nil {
			err = pause(ctx, wait)
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, lastLines(d.dir.daemonLog(), from))
		}
	}
}

// activeServer returns the servers, and whether the first one owns the GPU. A server in state FAULT owns it: it accepts clients again when
// the affected clients have exited.
func (d *daemon) activeServer(ctx context.Context) (servers []int, active bool, err error) {
	servers, err = d.servers(ctx)
	if err != nil || len(servers) == 0 {
		return nil, false, err
	}
	answers, err := d.ask(ctx, fmt.Sprintf("get_server_status %d", servers[0]))
	if err != nil {
		return servers, false, err
	}
	return servers, slices.Contains(answers[0], "ACTIVE") || slices.Contains(answers[0], "FAULT"), nil
}

// pause waits, and returns why the context is done.
func pause(ctx context.Context, wait time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(wait):
		return nil
	}
}

// record remembers the servers, which outlive a daemon that is killed.
func (d *daemon) record(ctx context.Context, servers []int) error {
	if slices.Equal(servers, d.state.Servers) {
		return nil
	}
	var found []hostfs.Process
	for _, pid := range servers {
		if p, exists := processes.Process(pid); exists {
			found = append(found, p)
		}
	}
	d.state.Servers, d.state.Processes = servers, found
	if err := d.save(); err != nil {
		return err
	}
	d.service.publish(d, true)
	d.watchServers(ctx)
	return nil
}
