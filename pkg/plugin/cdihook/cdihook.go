package cdihook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// CTKName is NVIDIA's other program with hooks, as subcommands of its command hook. Before version 1.16 it is the only one.
const CTKName = "nvidia-ctk"

const (
	// timeout limits reading the help, killGrace the wait for a killed program to exit.
	timeout, killGrace = 10 * time.Second, time.Second
	// outputLimit is the number of bytes that are kept of the help. The help of version 1.20 takes 2.5 KB.
	outputLimit = 64 << 10
)

// Args returns the first arguments of a hook for the program at that path, including the name of the program.
func Args(path, hook string) []string {
	return append(command(path), hook)
}

// command returns the program's name, and the command that contains its hooks. Like NVIDIA's nvcdi, it depends on the name of the file.
func command(path string) []string {
	base := filepath.Base(path)
	if base == CTKName {
		return []string{base, "hook"}
	}
	return []string{base}
}

// Asker asks hook programs of a host for their hooks.
type Asker struct {
	// Root is the host's root directory as this process sees it. Programs run in it, with the host's libraries and shell: the program of
	// NVIDIA's toolkit container is a script.
	Root string
}

// Hooks returns the sorted hooks that the help of the program at the host's path lists. It runs the program once.
func (a Asker) Hooks(ctx context.Context, path string) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	args := append(command(path)[1:], "--help")
	type answer struct {
		help string
		err  error
	}
	exited := make(chan answer, 1)
	go func() {
		// The kernel kills the program when this thread exits (Pdeathsig), so no other goroutine may run on it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		help, err := a.run(ctx, path, args)
		exited <- answer{help, err}
	}()
	var got answer
	select {
	case got = <-exited:
	case <-ctx.Done():
		select {
		case got = <-exited:
		case <-time.After(killGrace): // blocked in the kernel
			got.err = context.Cause(ctx)
		}
	}
	hooks := Parse(got.help)
	if got.err == nil && len(hooks) == 0 {
		got.err = fmt.Errorf("no commands in its output: %.200q", got.help)
	}
	if got.err != nil {
		return nil, fmt.Errorf("reading the help of %s %s: %w", path, strings.Join(args, " "), got.err)
	}
	return hooks, nil
}

// run runs the program until it exits, and returns its output.
func (a Asker) run(ctx context.Context, path string, args []string) (string, error) {
	printed := &limited{}
	program := exec.CommandContext(ctx, path, args...)
	program.Dir = "/"
	program.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	program.Stdout, program.Stderr = printed, printed
	program.WaitDelay = killGrace / 2
	program.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if a.Root != "/" {
		program.SysProcAttr.Chroot = a.Root
	}
	program.Cancel = func() error { return syscall.Kill(-program.Process.Pid, syscall.SIGKILL) }
	err := program.Run()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		err = fmt.Errorf("exit code %d: %.200q", exit.ExitCode(), printed.String())
	}
	return printed.String(), err
}

// limited keeps the first outputLimit bytes that are written to it.
type limited struct{ bytes.Buffer }

// Write discards what exceeds the limit and always succeeds.
func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), max(0, outputLimit-l.Len()))])
	return len(p), nil
}

// listed matches the line of a command: its name, aliases, and after a gap its description. Continuation lines begin with a wide gap.
var listed = regexp.MustCompile(`^ {1,8}([a-z][a-z0-9-]*)(?:, \S+)* {2,}\S`)

// Parse lists the commands of a help text, sorted: all in the section COMMANDS except help.
func Parse(help string) []string {
	var commands []string
	in := false
	for line := range strings.Lines(help) {
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, " ") {
			in = strings.HasPrefix(line, "COMMANDS:")
			continue
		}
		if found := listed.FindStringSubmatch(line); in && found != nil && found[1] != "help" {
			commands = append(commands, found[1])
		}
	}
	slices.Sort(commands)
	return commands
}
