package abi

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// processID returns the number of a process in the pid namespace of the caller; false if the caller cannot see it.
func (c *call) processID(pid int) (int, bool) {
	if c.caller.PID == 0 || c.caller.PID == pid && len(processIDs(pid)) <= 1 {
		return pid, true
	}
	own := processIDs(c.caller.PID)
	if len(own) <= 1 {
		return pid, true // the caller is in the namespace of this process
	}
	ids := processIDs(pid)
	if len(ids) < len(own) || namespaceAbove(pid, len(ids)-len(own)) != namespaceAbove(c.caller.PID, 0) {
		return 0, false
	}
	return ids[len(own)-1], true
}

// processIDs returns the numbers of a process in its pid namespaces, from the namespace of this process inwards; none if it has exited.
func processIDs(pid int) []int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(status)) {
		rest, found := strings.CutPrefix(line, "NSpid:")
		if !found {
			continue
		}
		var ids []int
		for _, field := range strings.Fields(rest) {
			id, err := strconv.Atoi(field)
			if err != nil {
				return nil
			}
			ids = append(ids, id)
		}
		return ids
	}
	return nil
}

// namespaceAbove identifies the pid namespace that is the given number of levels above the namespace of a process; 0 if it has exited.
func namespaceAbove(pid, levels int) uint64 {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns/pid", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer func() { unix.Close(fd) }()
	for ; levels > 0; levels-- {
		above, err := unix.IoctlRetInt(fd, unix.NS_GET_PARENT)
		if err != nil {
			return 0
		}
		unix.Close(fd)
		fd = above
	}
	var stat syscall.Stat_t
	if syscall.Fstat(fd, &stat) != nil {
		return 0
	}
	return stat.Ino
}
