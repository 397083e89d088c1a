package nvsmi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	// killGrace limits the wait for a killed program to exit; a program that is blocked in the kernel does not exit.
	killGrace = time.Second
	// outputLimit is the number of bytes that are kept of the program's output.
	outputLimit = 4 << 10
)

// result is the outcome of a run: the first printed line and the exit code, or an error.
type result struct {
	out  string
	code int
	err  error
}

// run runs the program once for a GPU and returns the first line that it printed and its exit code, or an error if it did not exit by
// itself. A program that hangs occupies one thread and stays in flight; run returns killGrace after the context is done at the latest.
func (t *Tool) run(ctx context.Context, id gpu.UUID, install Install, args ...string) (out string, code int, err error) {
	if ctx.Err() != nil {
		return "", 0, context.Cause(ctx)
	}
	if err := t.inFlight.begin(id); err != nil {
		return "", 0, err
	}
	program := t.program
	if program == nil {
		program = execute
	}
	exited := make(chan result, 1)
	go func() {
		// The kernel kills the child when this thread exits (Pdeathsig), so no other goroutine may run on it. A program that outlived its
		// plugin could overwrite the interval that the next plugin sets.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		r := program(ctx, install, args, func(pid int) { t.inFlight.started(id, pid) })
		t.inFlight.end(id) // before the caller can retry
		exited <- r
	}()
	select {
	case r := <-exited:
		return r.out, r.code, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-exited:
		return r.out, r.code, r.err
	case <-time.After(killGrace):
		return "", 0, fmt.Errorf("process %d of the plugin's container cannot be killed: %w", t.inFlight.pid(id), context.Cause(ctx))
	}
}

// execute runs the program until it exits, and calls started with the ID of its process.
func execute(ctx context.Context, install Install, args []string, started func(pid int)) result {
	printed := &limited{}
	command := exec.CommandContext(ctx, install.Program, args...)
	command.Dir = "/"
	command.Env = []string{"LD_PRELOAD=" + install.Library, "LC_ALL=C"}
	command.Stdout, command.Stderr = printed, printed
	command.WaitDelay = killGrace / 2
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	err := command.Start()
	if err == nil {
		started(command.Process.Pid)
		err = command.Wait()
	}
	if ctx.Err() != nil && err != nil {
		return result{err: context.Cause(ctx)}
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return result{out: printed.line(), code: exit.ExitCode()}
	}
	return result{out: printed.line(), err: err}
}

// limited keeps the first outputLimit bytes that are written to it.
type limited struct{ kept bytes.Buffer }

// Write discards what exceeds the limit and always succeeds.
func (l *limited) Write(p []byte) (int, error) {
	room := max(0, outputLimit-l.kept.Len())
	l.kept.Write(p[:min(room, len(p))])
	return len(p), nil
}

// line returns the first line that is not blank, short enough for an Event.
func (l *limited) line() string {
	const most = 200
	for line := range strings.Lines(l.kept.String()) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			return strings.ToValidUTF8(line[:min(most, len(line))], "")
		}
	}
	return "no output"
}
