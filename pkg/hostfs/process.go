package hostfs

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Process is a process that has not exited. Values compare with ==; another process with the same pid differs.
type Process struct {
	PID int `json:"pid"`
	// Start is when it started, in clock ticks since the boot.
	Start uint64 `json:"start"`
}

// Process returns the process with a pid, false if there is none or it has exited and is not reaped yet.
func (f *FS) Process(pid int) (Process, bool) {
	raw, err := f.read(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, false
	}
	return parseStat(pid, raw)
}

// parseStat reads the content of a file /proc/<pid>/stat.
func parseStat(pid int, raw []byte) (Process, bool) {
	const state, startTime = 0, 19 // of the fields after the program's name
	// The name is in parentheses, and may contain some.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) <= startTime || fields[state] == "Z" || fields[state] == "X" {
		return Process{}, false
	}
	start, err := strconv.ParseUint(fields[startTime], 10, 64)
	return Process{PID: pid, Start: start}, err == nil
}

// ProcessesWith lists the processes whose environment, as it was when they were started, has the entry "NAME=value", by pid. Processes of
// other PID namespaces than that of this process are left out: every container chooses the environment of its own processes.
func (f *FS) ProcessesWith(entry string) ([]Process, error) {
	seen, err := f.resolve("/proc")
	if err != nil {
		return nil, err
	}
	namespace, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		return nil, fmt.Errorf("reading the own PID namespace: %w", err)
	}
	entries, err := os.ReadDir(seen)
	if err != nil {
		return nil, fmt.Errorf("listing processes in %w", hostError("/proc", err))
	}
	var found []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		environment, err := os.ReadFile(fmt.Sprintf("%s/%d/environ", seen, pid))
		if err != nil || !slices.Contains(strings.Split(string(environment), "\x00"), entry) {
			continue // it exited meanwhile, or is another
		}
		if other, err := os.Stat(fmt.Sprintf("%s/%d/ns/pid", seen, pid)); err != nil || !os.SameFile(namespace, other) {
			continue
		}
		if process, running := f.Process(pid); running {
			found = append(found, process)
		}
	}
	slices.SortFunc(found, func(a, b Process) int { return a.PID - b.PID })
	return found, nil
}
