//go:build linux

package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prism-gpu/prism/hack/localcluster/supervise"
)

// InitCommand is the hidden command of the first process of a namespace; its only argument is the path of its spec. Both together identify
// the process.
const InitCommand = "init"

// process is a running first process, as seen from the host.
type process struct {
	PID int `json:"pid"`
	// Started is the start time in clock ticks since the machine's boot: a pid alone may be reused by another process.
	Started string `json:"started"`
}

// remember writes the process beside its spec.
func remember(spec string, pid int) error {
	started, err := startTime(pid)
	if err != nil {
		return err
	}
	return writeJSON(spec+".pid", process{PID: pid, Started: started})
}

// find returns the pid of the process with the spec, 0 if there is none.
func find(spec string) int {
	text, err := os.ReadFile(spec + ".pid")
	if err != nil {
		return 0
	}
	var noted process
	if err := json.Unmarshal(text, &noted); err != nil {
		return 0
	}
	if now, err := startTime(noted.PID); err != nil || now != noted.Started || gone(noted.PID) || !runs(noted.PID, spec) {
		return 0
	}
	return noted.PID
}

// startTime is field 22 of /proc/PID/stat; the command name before it may contain spaces.
func startTime(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", fmt.Errorf("reading process %d: %w", pid, err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("reading process %d: its stat line has %d fields", pid, len(fields))
	}
	return fields[19], nil
}

// runs reports whether the process is a first process of this spec.
func runs(pid int, spec string) bool {
	return isInit(cmdline(pid), func(path string) bool { return path == spec })
}

func cmdline(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
}

func isInit(args []string, spec func(string) bool) bool {
	return len(args) == 3 && args[1] == InitCommand && spec(args[2])
}

// inits finds every first process of the cluster, including processes without a recorded pid after a crash.
func (c *Cluster) inits() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if isInit(cmdline(pid), func(spec string) bool { return strings.HasPrefix(spec, c.Dir+string(filepath.Separator)) }) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill kills the first processes, and with them everything in their namespaces, like a power cut.
func kill(pids ...int) error {
	for _, pid := range pids {
		if err := supervise.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("killing process %d: %w", pid, err)
		}
	}
	const limit = 2 * time.Minute
	deadline := time.Now().Add(limit)
	for _, pid := range pids {
		for !gone(pid) {
			if time.Now().After(deadline) {
				return fmt.Errorf("killing process %d: it still exists after %s", pid, limit)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

// gone reports whether the process has exited, even if its parent has not collected it yet.
func gone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	return len(fields) == 0 || fields[0] == "Z" || fields[0] == "X"
}
