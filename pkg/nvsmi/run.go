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
	// killed is how long a program that was killed may take to go: one that hangs in the kernel stays.
	killed = time.Second
	// longest is how much is kept of what it prints.
	longest = 4 << 10
)

// ended is how a run ended.
type ended struct {
	out  string
	code int
	err  error
}

// run runs the program once for a GPU and returns the first line that it printed and its exit code. The error says why there is none. A
// program that hangs keeps one thread and the GPU's gate; nobody waits for it for longer than the context says.
func (t *Tool) run(ctx context.Context, id gpu.UUID, install Install, args ...string) (out string, code int, err error) {
	if ctx.Err() != nil {
		return "", 0, context.Cause(ctx)
	}
	if err := t.gate.enter(id); err != nil {
		return "", 0, err
	}
	program := t.program
	if program == nil {
		program = execute
	}
	result := make(chan ended, 1)
	go func() {
		// The kernel kills the child when this thread ends, so no other goroutine may end it. A program that went on after its plugin died
		// could undo what the next one sets.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		r := program(ctx, install, args, func(pid int) { t.gate.started(id, pid) })
		t.gate.leave(id) // before the caller can try again
		result <- r
	}()
	select {
	case r := <-result:
		return r.out, r.code, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-result:
		return r.out, r.code, r.err
	case <-time.After(killed):
		return "", 0, fmt.Errorf("process %d of the plugin's container cannot be killed: %w", t.gate.pid(id), context.Cause(ctx))
	}
}

// execute runs the program until it has exited, and says when there is a process.
func execute(ctx context.Context, install Install, args []string, started func(pid int)) ended {
	printed := &limited{}
	command := exec.CommandContext(ctx, install.Program, args...)
	command.Dir = "/"
	command.Env = []string{"LD_PRELOAD=" + install.Library, "LC_ALL=C"}
	command.Stdout, command.Stderr = printed, printed
	command.WaitDelay = killed / 2
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	err := command.Start()
	if err == nil {
		started(command.Process.Pid)
		err = command.Wait()
	}
	if ctx.Err() != nil && err != nil {
		return ended{err: context.Cause(ctx)}
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return ended{out: printed.line(), code: exit.ExitCode()}
	}
	return ended{out: printed.line(), err: err}
}

// limited keeps the beginning of what is written to it.
type limited struct{ kept bytes.Buffer }

// Write keeps what there is room for and takes the rest too.
func (l *limited) Write(p []byte) (int, error) {
	room := max(0, longest-l.kept.Len())
	l.kept.Write(p[:min(room, len(p))])
	return len(p), nil
}

// line is the first line that says something, of a length that fits into an event.
func (l *limited) line() string {
	const most = 200
	for line := range strings.Lines(l.kept.String()) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			return strings.ToValidUTF8(line[:min(most, len(line))], "")
		}
	}
	return "it printed nothing"
}
