package mpsd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	// device is the ordinal of the only device that the daemon sees.
	device = 0
	// noPercentage is the value that a daemon without a limit reports.
	noPercentage = 100
	// percentageTolerance allows for drivers that round a percentage to whole SMs.
	percentageTolerance = 1
	mibPerGiB           = 1024
	// percentageCommand is part of the names of the commands for percentages.
	percentageCommand = "active_thread_percentage"
)

// scope says to which processes limits apply: servers of a daemon that start later, or clients of a server that connect later.
type scope struct {
	// name is used in errors.
	name string
	// percentage and memory are the suffixes of the commands' names, with the server's PID.
	percentage, memory string
}

var byDefault = scope{"the control daemon", "default_" + percentageCommand, "default_device_pinned_mem_limit"}

func ofServer(pid int) scope {
	return scope{fmt.Sprintf("server %d", pid), fmt.Sprintf("%s %d", percentageCommand, pid), fmt.Sprintf("device_pinned_mem_limit %d", pid)}
}

// notRunning returns a gpu.ErrNotFound.
func notRunning(id gpu.MPSDaemonID) error {
	return fmt.Errorf("MPS control daemon %s is not running: %w", id, gpu.ErrNotFound)
}

// limits reads the limits in force. It takes one run of the user interface, unless there are unknown servers.
func (d *daemon) limits(ctx context.Context) (gpu.MPSLimitsInForce, error) {
	if d.status != gpu.MPSRunning {
		return gpu.MPSLimitsInForce{}, notRunning(d.id)
	}
	var inForce gpu.MPSLimitsInForce
	err := d.eachServer(ctx, func(servers []int) (listed []int, err error) {
		inForce, listed, err = d.read(ctx, servers)
		return listed, err
	})
	return inForce, d.limitsError("reading", err)
}

// eachServer calls do for the known servers, and again as long as do finds others.
func (d *daemon) eachServer(ctx context.Context, do func(servers []int) (listed []int, err error)) error {
	for range attempts {
		known := d.state.Servers
		listed, err := do(known)
		if err == nil {
			err = d.record(ctx, listed)
		}
		if err != nil || !slices.ContainsFunc(listed, func(pid int) bool { return !slices.Contains(known, pid) }) {
			return err
		}
	}
	return fmt.Errorf("servers restart too often: %w", gpu.ErrTimeout)
}

func (d *daemon) limitsError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s the limits of MPS control daemon %s: %w", doing, d.id, err)
}

// errGone says that the server has exited.
var errGone = errors.New("it has exited")

// reads returns the commands that report the limits of a scope.
func (s scope) reads() []string {
	return []string{"get_" + s.percentage, fmt.Sprintf("get_%s %d", s.memory, device)}
}

// read reads the limits of the daemon and of these servers in one run of the user interface. It leaves out servers that have exited. listed
// are the present servers.
func (d *daemon) read(ctx context.Context, servers []int) (inForce gpu.MPSLimitsInForce, listed []int, err error) {
	commands := append(byDefault.reads(), listServers)
	for _, pid := range servers {
		commands = append(commands, ofServer(pid).reads()...)
	}
	answers, err := d.ask(ctx, commands...)
	if err != nil {
		return inForce, nil, err
	}
	inForce.Servers = map[int]gpu.MPSLimits{}
	inForce.Default, err = d.parse(byDefault, answers)
	listed, answers = parsePIDs(answers[2]), answers[3:]
	for i, pid := range servers {
		limits, parseErr := d.parse(ofServer(pid), answers[2*i:])
		if errors.Is(parseErr, errGone) {
			continue
		}
		err = errors.Join(err, parseErr)
		inForce.Servers[pid] = limits
	}
	return inForce, listed, err
}

// parse converts the answers to the reads of a scope. A percentage of 100 means unlimited, unless the spec contains it.
func (d *daemon) parse(s scope, answers [][]string) (limits gpu.MPSLimits, err error) {
	percentage, memory := answers[0], answers[1]
	if len(percentage) == 1 && strings.HasSuffix(percentage[0], "not found") {
		return limits, errGone
	}
	if len(percentage) != 1 {
		return limits, fmt.Errorf("the active thread percentage of %s is not reported: %q", s.name, percentage)
	}
	if limits.ActiveThreadPercentage, err = parsePercentage(percentage[0]); err != nil {
		return limits, err
	}
	if limits.ActiveThreadPercentage >= noPercentage && d.state.Spec.ActiveThreadPercentage < noPercentage-percentageTolerance {
		limits.ActiveThreadPercentage = 0
	}
	if len(memory) > 0 && strings.HasPrefix(memory[0], unknownCommand) {
		if d.state.Spec.MemoryMiB > 0 {
			err = &gpu.UnsupportedError{Feature: "a memory limit of MPS clients", Needs: fmt.Sprintf("a control daemon of driver 495 or later (%s)", memory[0])}
		}
		return limits, err
	}
	limits.MemoryMiB, err = parseMemory(memory)
	return limits, err
}

// unknownCommand is the prefix of the answer to an unsupported command; memory limits exist since CUDA 11.5.
const unknownCommand = "Unknown command"

// parseMemory converts "512M" or "2G" to MiB; no output means unlimited.
func parseMemory(lines []string) (int64, error) {
	if len(lines) == 0 || len(lines) == 1 && (lines[0] == "" || strings.HasSuffix(lines[0], "not found")) {
		return 0, nil
	}
	text, isMiB := strings.CutSuffix(lines[0], "M")
	text, isGiB := strings.CutSuffix(text, "G")
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || isMiB == isGiB || len(lines) != 1 {
		return 0, fmt.Errorf("the memory limit must be a number with the suffix M or G, got %q", lines)
	}
	if isGiB {
		value *= mibPerGiB
	}
	return value, nil
}

// inForce reports whether limits that were read match the spec: the memory exactly or, as some drivers report it, rounded down to GiB, and
// the percentage within the tolerance. 0 means unlimited and matches only 0.
func inForce(spec gpu.MPSDaemonSpec, limits gpu.MPSLimits) bool {
	memory := limits.MemoryMiB == spec.MemoryMiB || spec.MemoryMiB >= mibPerGiB && limits.MemoryMiB == spec.MemoryMiB/mibPerGiB*mibPerGiB
	percentage := float64(spec.ActiveThreadPercentage)
	if (percentage == 0) != (limits.ActiveThreadPercentage == 0) {
		return false
	}
	return memory && math.Abs(limits.ActiveThreadPercentage-percentage) <= percentageTolerance
}

// sets returns the commands that set the limits of a scope to the limits of the spec. fresh: the scope is unlimited so far.
func (s scope) sets(spec gpu.MPSDaemonSpec, fresh bool) (commands []string) {
	if !fresh || spec.MemoryMiB > 0 {
		commands = append(commands, fmt.Sprintf("set_%s %d %dM", s.memory, device, spec.MemoryMiB))
	}
	percentage := spec.ActiveThreadPercentage
	if percentage == 0 {
		percentage = noPercentage
	}
	if !fresh || spec.ActiveThreadPercentage > 0 {
		commands = append(commands, fmt.Sprintf("set_%s %d", s.percentage, percentage))
	}
	return commands
}

// setDefault sets the limits of a daemon that has just been started, and reads them back.
func (d *daemon) setDefault(ctx context.Context) error {
	_, err := d.setLimits(ctx, nil, byDefault.sets(d.state.Spec, true))
	return err
}

// setLimits sets limits of the daemon and of these servers with commands in one run of the user interface, and reads them back in another:
// drivers differ in the output of the commands that set limits.
func (d *daemon) setLimits(ctx context.Context, servers []int, set []string) (listed []int, err error) {
	var wrong error
	for range attempts {
		if len(set) > 0 {
			if _, err := d.command(ctx, set...); err != nil {
				return nil, err
			}
		}
		var limits gpu.MPSLimitsInForce
		if limits, listed, err = d.read(ctx, servers); err != nil {
			return listed, err
		}
		wrong = d.compare(byDefault, limits.Default)
		for pid, of := range limits.Servers {
			wrong = errors.Join(wrong, d.compare(ofServer(pid), of))
		}
		if wrong == nil {
			return listed, nil
		}
	}
	return listed, wrong
}

// compare returns an error if limits differ from the spec.
func (d *daemon) compare(s scope, limits gpu.MPSLimits) error {
	spec := d.state.Spec
	if inForce(spec, limits) {
		return nil
	}
	return fmt.Errorf("%s reports %d MiB and %v %% after %d MiB and %d %% were set (0: unlimited): %s", s.name, limits.MemoryMiB,
		limits.ActiveThreadPercentage, spec.MemoryMiB, spec.ActiveThreadPercentage, lastLines(d.dir.daemonLog(), 0))
}

// restoreLimits sets the limits of the daemon and of its servers.
func (d *daemon) restoreLimits(ctx context.Context, spec gpu.MPSDaemonSpec) error {
	if d.status != gpu.MPSRunning {
		return notRunning(d.id)
	}
	d.state.Spec.MemoryMiB, d.state.Spec.ActiveThreadPercentage = spec.MemoryMiB, spec.ActiveThreadPercentage
	if err := d.save(); err != nil {
		return err
	}
	err := d.eachServer(ctx, func(servers []int) ([]int, error) {
		set := byDefault.sets(d.state.Spec, false)
		for _, pid := range servers {
			set = append(set, ofServer(pid).sets(d.state.Spec, false)...)
		}
		return d.setLimits(ctx, servers, set)
	})
	d.service.publish(d, true)
	return d.limitsError("setting", err)
}
