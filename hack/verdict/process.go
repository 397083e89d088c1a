//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// endIn is the time for an interrupted command to clean up, a cluster for example, before it is killed.
const endIn = 2 * time.Minute

// command creates a command in a separate process group, which is terminated as a whole: by SIGTERM when ctx is done, and after endIn by
// SIGKILL. It stays in this session, because a separate session would get the same CPU weight as this whole session.
func command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		// A process that ignores SIGTERM would keep the output open, and its reader waiting.
		time.AfterFunc(endIn, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
		return syscall.Kill(group, syscall.SIGTERM)
	}
	cmd.WaitDelay = endIn
	return cmd
}

// wait waits for a command, and after an interrupt kills the remaining processes of its group.
func wait(ctx context.Context, cmd *exec.Cmd) error {
	err := cmd.Wait()
	if ctx.Err() != nil {
		// The group does not exist any more if all of it exited in time.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		return errors.Join(context.Cause(ctx), err)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		// The command passed, and a process that it left still holds its output.
		_, _ = os.Stderr.WriteString("verdict: a process that was left by " + cmd.Args[0] + " keeps its output open\n")
		return nil
	}
	return err
}
