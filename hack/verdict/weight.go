//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// groupPrefix begins the names of control groups.
const groupPrefix = "prism-lifecycle-"

// lowestWeight makes the processes of a step only use CPU time that no other process of the machine needs. A nice value does not achieve
// that: the kernel groups processes by session, and compares nice values only within a session.
type lowestWeight struct {
	// group is a control group below the root of its hierarchy, beside the groups of the clusters; empty if the session gets the weight.
	group string
	// file is the file with the weight of the group, usual is the weight of other groups.
	file, usual string
	// alone is closed when the usual weight is restored.
	alone chan struct{}
}

// newLowestWeight creates a control group, or otherwise checks that sessions have weights.
func newLowestWeight() (*lowestWeight, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("finding the CPU controller: %w", err)
	}
	if root, file, lowest, usual := cpuHierarchy(string(mounts)); root != "" {
		if group, err := makeGroup(root, file, lowest); err == nil {
			return &lowestWeight{group: group, file: file, usual: usual, alone: make(chan struct{})}, nil
		}
	}
	enabled, err := os.ReadFile("/proc/sys/kernel/sched_autogroup_enabled")
	if err != nil || strings.TrimSpace(string(enabled)) != "1" {
		return nil, errors.New("this machine has neither a writable CPU cgroup nor weights of sessions")
	}
	return &lowestWeight{alone: make(chan struct{})}, nil
}

// cpuHierarchy finds the mount point with the CPU controller, the file of weights there, the lowest value and the kernel's default.
func cpuHierarchy(mountinfo string) (root, file, lowest, usual string) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if dash < 5 || dash+3 >= len(fields) {
			continue
		}
		switch fields[dash+1] {
		case "cgroup":
			if slices.Contains(strings.Split(fields[dash+3], ","), "cpu") {
				return fields[4], "cpu.shares", "2", "1024"
			}
		case "cgroup2":
			root, file, lowest, usual = fields[4], "cpu.weight", "1", "100"
		}
	}
	return root, file, lowest, usual
}

func makeGroup(root, file, weight string) (string, error) {
	// Groups of killed runs; groups of active runs contain processes and stay.
	left, err := filepath.Glob(filepath.Join(root, groupPrefix+"*"))
	if err != nil {
		return "", err
	}
	for _, group := range left {
		_ = os.Remove(group)
	}
	if file == "cpu.weight" {
		// Version 2 delegates controllers to groups one by one. The write fails if that was already done, or the root is not the machine's.
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0o644)
	}
	group, err := os.MkdirTemp(root, groupPrefix)
	if err != nil {
		return "", err
	}
	target, err := os.OpenFile(filepath.Join(group, file), os.O_WRONLY, 0)
	if err == nil {
		_, err = target.WriteString(weight)
		err = errors.Join(err, target.Close())
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(group))
	}
	return group, nil
}

func (w *lowestWeight) String() string {
	if w.group != "" {
		return "in the CPU cgroup " + w.group
	}
	return "in a session with nice value 19"
}

// command creates a command that sets the weight before it starts its own processes.
func (w *lowestWeight) command(ctx context.Context, args []string) *exec.Cmd {
	switch {
	case w == nil:
		return command(ctx, args)
	case w.group != "":
		cmd := command(ctx, append([]string{"sh", "-ec", `echo $$ >"$0/cgroup.procs"; exec "$@"`, w.group}, args...))
		return w.restoring(cmd)
	default:
		cmd := command(ctx, append([]string{"sh", "-ec", `echo 19 >/proc/self/autogroup; exec "$@"`, "sh"}, args...))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return w.restoring(cmd)
	}
}

// restoring restores the usual weight when cmd is interrupted, because cleanup needs CPU time.
func (w *lowestWeight) restoring(cmd *exec.Cmd) *exec.Cmd {
	end := cmd.Cancel
	cmd.Cancel = func() error {
		w.restore(cmd)
		return end()
	}
	return cmd
}

// restore sets a running step to the usual weight. At the lowest one it would get nothing beside a process that is always busy.
func (w *lowestWeight) restore(cmd *exec.Cmd) {
	path, weight := filepath.Join(w.group, w.file), w.usual
	if w.group == "" {
		path, weight = filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "autogroup"), "0"
	}
	// A step that has exited needs no weight.
	_ = os.WriteFile(path, []byte(weight), 0o644)
}

// remove removes the group. After an interrupt it first kills its remaining processes.
func (w *lowestWeight) remove(interrupted bool) {
	if w == nil || w.group == "" {
		return
	}
	for range 100 {
		if interrupted {
			w.kill()
		}
		if err := os.Remove(w.group); err == nil || os.IsNotExist(err) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (w *lowestWeight) kill() {
	pids, err := readLines(filepath.Join(w.group, "cgroup.procs"))
	if err != nil {
		return
	}
	for _, pid := range pids {
		if n, err := strconv.Atoi(pid); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
}
