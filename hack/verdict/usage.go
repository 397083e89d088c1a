//go:build linux

package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTicks per second are the unit of /proc/stat on every architecture of Linux that Go supports.
const clockTicks = 100

// busy is the CPU time of the whole machine since boot, including containers and daemons.
func busy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("reading the machine's CPU time: %w", err)
	}
	return parseBusy(string(text))
}

// parseBusy adds up user, nice, system, irq and softirq of the first line. The other columns are idle time, or parts of these.
func parseBusy(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("reading the machine's CPU time: unknown line %q", line)
	}
	ticks := int64(0)
	for _, column := range []int{1, 2, 3, 6, 7} {
		n, err := strconv.ParseInt(fields[column], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the machine's CPU time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / clockTicks, nil
}

// othersBusy reports whether other processes use more than half of the CPU time, in seconds in which no step runs.
func othersBusy() bool {
	const sample = 3 * time.Second
	before, start := machineTime(), time.Now()
	time.Sleep(sample)
	return (machineTime() - before).Seconds() > time.Since(start).Seconds()*float64(runtime.NumCPU())/2
}

// machineTime is busy, or 0 if it cannot be read: a run does not fail because of its report.
func machineTime() time.Duration {
	d, _ := busy()
	return d
}

// cpuOf is the CPU time of an exited process, and of the children for which it waited.
func cpuOf(state *os.ProcessState) time.Duration {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// load is the load average of the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
