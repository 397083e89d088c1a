package scale

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a process of the measured cluster.
type process struct{ pid int }

// started is a process of this run; it is killed when the run ends.
type started struct {
	process
	cmd *exec.Cmd
}

// start runs a program whose output goes to a file.
func start(log, program string, args ...string) (*started, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	return &started{process: process{pid: cmd.Process.Pid}, cmd: cmd}, nil
}

// stop kills the process and reaps it.
func (s *started) stop() {
	_ = s.cmd.Process.Kill() // it may have exited
	_ = s.cmd.Wait()
}

// findProcess returns the process that executes this file.
func findProcess(program string) (process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return process{}, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe")); err == nil && exe == program {
			return process{pid: pid}, nil
		}
	}
	return process{}, fmt.Errorf("no process runs %s", program)
}

// clockTicks is USER_HZ, which is 100 on every Linux that Go runs on.
const clockTicks = 100

// cpu returns the CPU time of the process.
func (p process) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return 0, err
	}
	// The second field is a name in parentheses and may contain spaces.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const user, system = 11, 12
	if len(fields) <= system {
		return 0, errors.New("unexpected form of /proc/PID/stat")
	}
	ticks := 0
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / clockTicks, nil
}

// resident returns the resident memory of the process in bytes.
func (p process) resident() (int64, error) {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.pid))
	if err != nil {
		return 0, err
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(statm), &size, &pages); err != nil {
		return 0, err
	}
	return pages * int64(os.Getpagesize()), nil
}

// loadAverage returns the load average of the last minute.
func loadAverage() string {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(load))[0]
}
