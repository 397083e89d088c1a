package hostfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Process is a process that has not exited. Values compare with ==; another process with the same pid differs.
type Process struct {
	PID int `json:"pid"`
	// Start is the start time in clock ticks since the boot.
	Start uint64 `json:"start"`
}

// Process returns the process with a PID, false if there is none or if it has exited and is not reaped yet.
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
	// The name is in parentheses and may contain parentheses.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) <= startTime || fields[state] == "Z" || fields[state] == "X" {
		return Process{}, false
	}
	start, err := strconv.ParseUint(fields[startTime], 10, 64)
	return Process{PID: pid, Start: start}, err == nil
}

// environmentLimit is the searched part of a process's environment. Programs that callers of ProcessesWith search for start with less.
const environmentLimit = 64 << 10

// ProcessesWith lists the processes whose environment contains the entry "NAME=value" in its first 64 KiB, by PID. A process can change the
// content and the length of its environment at any time. So processes of other PID namespaces are left out unread, because containers
// choose the environment of their processes, and no more than 64 KiB is read of the others.
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
	buffer := make([]byte, environmentLimit)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if other, err := os.Stat(fmt.Sprintf("%s/%d/ns/pid", seen, pid)); err != nil || !os.SameFile(namespace, other) {
			continue
		}
		if !hasEntry(fmt.Sprintf("%s/%d/environ", seen, pid), entry, buffer) {
			continue // it exited in the meantime, or is another process
		}
		if process, running := f.Process(pid); running {
			found = append(found, process)
		}
	}
	slices.SortFunc(found, func(a, b Process) int { return a.PID - b.PID })
	return found, nil
}

// hasEntry reports whether the environment in a file contains the entry, in the part that fits into the buffer.
func hasEntry(file, entry string, buffer []byte) bool {
	opened, err := os.Open(file)
	if err != nil {
		return false
	}
	defer opened.Close()
	read, err := io.ReadFull(opened, buffer)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	environment, wanted := buffer[:read], []byte(entry+"\x00")
	return bytes.HasPrefix(environment, wanted) || bytes.Contains(environment, append([]byte{0}, wanted...))
}
