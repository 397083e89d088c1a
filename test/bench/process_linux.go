package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// listener returns the pid of the process that listens at a unix socket.
func listener(ctx context.Context, socket string) (int, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, fmt.Errorf("connecting to %s: %w", socket, err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("finding the process that serves %s: %w", socket, err)
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = peerErr
	}
	if err != nil {
		return 0, fmt.Errorf("finding the process that serves %s: %w", socket, err)
	}
	return int(peer.Pid), nil
}

// Memory is the memory of a process, in bytes.
type Memory struct {
	// Resident is the current size, Peak the maximum so far.
	Resident, Peak int64
	// Anonymous is the part of Resident that belongs to the process alone; the rest are pages of its program and libraries.
	Anonymous int64
}

// MemoryOf reads the memory of a process.
func MemoryOf(pid int) (Memory, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return Memory{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	values := map[string]int64{}
	for line := range bytes.Lines(text) {
		name, rest, _ := strings.Cut(string(line), ":")
		if kib, ok := strings.CutSuffix(strings.TrimSpace(rest), " kB"); ok {
			values[name], _ = strconv.ParseInt(kib, 10, 64)
		}
	}
	m := Memory{Resident: values["VmRSS"] << 10, Peak: values["VmHWM"] << 10, Anonymous: values["RssAnon"] << 10}
	if m.Resident == 0 {
		return m, fmt.Errorf("reading the memory of process %d: no memory: the process exited", pid)
	}
	return m, nil
}

// cpuTime returns the CPU time of a process so far, with all its threads.
func cpuTime(pid int) (time.Duration, error) {
	const wholeProcess = 2 // CPUCLOCK_SCHED: nanoseconds
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|wholeProcess), &t); err != nil {
		return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// machine describes this machine in one line.
func machine() string {
	model, count := "unknown CPU", 0
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				count++
			}
		}
	}
	var name unix.Utsname
	kernel := "unknown"
	if unix.Uname(&name) == nil {
		kernel = unix.ByteSliceToString(name.Release[:])
	}
	return fmt.Sprintf("%d × %s, Linux %s", count, model, kernel)
}

// load returns the load average of the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	minute, _, _ := strings.Cut(string(text), " ")
	return minute
}

// proportionalShare returns the proportional set size of a process in bytes: a page that n processes map counts one n-th.
func proportionalShare(pid int) (int, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	for line := range bytes.Lines(text) {
		var kib int
		if n, _ := fmt.Sscanf(string(line), "Pss: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("reading the memory of process %d: no Pss in smaps_rollup", pid)
}
