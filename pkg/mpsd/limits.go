package mpsd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	// device is the ordinal of the only device that the daemon sees.
	device = 0
	// noPercentage is what a daemon without a limit reports.
	noPercentage = 100
	// percentageTolerance is for drivers that report a percentage in whole SMs.
	percentageTolerance = 1
	mibPerGiB           = 1024
)

// scope is what limits apply to: a daemon's servers that start later, or the clients of a server that connect later.
type scope struct {
	// name is in errors.
	name string
	// percentage and memory end the names of the commands, with the server's pid.
	percentage, memory string
}

var byDefault = scope{"the control daemon", "default_active_thread_percentage", "default_device_pinned_mem_limit"}

func ofServer(pid int) scope {
	return scope{fmt.Sprintf("server %d", pid), fmt.Sprintf("active_thread_percentage %d", pid), fmt.Sprintf("device_pinned_mem_limit %d", pid)}
}

// notRunning is gpu.ErrNotFound.
func notRunning(id gpu.MPSDaemonID) error {
	return fmt.Errorf("MPS control daemon %s is not running: %w", id, gpu.ErrNotFound)
}

// limits reads the limits in force.
func (d *daemon) limits(ctx context.Context) (gpu.MPSLimitsInForce, error) {
	if d.status != gpu.MPSRunning {
		return gpu.MPSLimitsInForce{}, notRunning(d.id)
	}
	inForce := gpu.MPSLimitsInForce{Servers: map[int]gpu.MPSLimits{}}
	var err error
	if inForce.Default, err = d.read(ctx, byDefault); err != nil {
		return inForce, d.limitsError("reading", err)
	}
	servers, err := d.servers(ctx)
	if err == nil {
		err = d.record(ctx, servers)
	}
	for _, pid := range servers {
		limits, readErr := d.read(ctx, ofServer(pid))
		if errors.Is(readErr, errGone) {
			continue
		}
		err = errors.Join(err, readErr)
		inForce.Servers[pid] = limits
	}
	return inForce, d.limitsError("reading", err)
}

func (d *daemon) limitsError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s the limits of MPS control daemon %s: %w", doing, d.id, err)
}

// errGone: the server has exited.
var errGone = errors.New("it has exited")

// read reads the limits of a scope. A percentage of 100 is no limit, unless it is that of the spec.
func (d *daemon) read(ctx context.Context, s scope) (gpu.MPSLimits, error) {
	var limits gpu.MPSLimits
	lines, err := d.ask(ctx, "get_"+s.percentage)
	if err != nil {
		return limits, err
	}
	if len(lines) == 1 && strings.HasSuffix(lines[0], "not found") {
		return limits, errGone
	}
	if len(lines) != 1 {
		return limits, fmt.Errorf("the active thread percentage of %s is not reported: %q", s.name, lines)
	}
	if limits.ActiveThreadPercentage, err = parsePercentage(lines[0]); err != nil {
		return limits, err
	}
	if limits.ActiveThreadPercentage >= noPercentage && d.state.Spec.ActiveThreadPercentage < noPercentage-percentageTolerance {
		limits.ActiveThreadPercentage = 0
	}
	if lines, err = d.ask(ctx, fmt.Sprintf("get_%s %d", s.memory, device)); err != nil {
		return limits, err
	}
	limits.MemoryMiB, err = parseMemory(lines)
	return limits, err
}

// parseMemory reads "512M" or "2G" in MiB; without a limit nothing is printed.
func parseMemory(lines []string) (int64, error) {
	if len(lines) == 0 || len(lines) == 1 && (lines[0] == "" || strings.HasSuffix(lines[0], "not found")) {
		return 0, nil
	}
	text, isMiB := strings.CutSuffix(lines[0], "M")
	text, isGiB := strings.CutSuffix(text, "G")
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || isMiB == isGiB || len(lines) != 1 {
		return 0, fmt.Errorf("the memory limit %q is not a number of M or G", lines)
	}
	if isGiB {
		value *= mibPerGiB
	}
	return value, nil
}

// inForce reports whether limits that were read are those of the spec: the memory exactly or, as drivers report it, rounded down to GiB,
// and the percentage within the tolerance. No limit, which is 0, is not within it.
func inForce(spec gpu.MPSDaemonSpec, limits gpu.MPSLimits) bool {
	memory := limits.MemoryMiB == spec.MemoryMiB || spec.MemoryMiB >= mibPerGiB && limits.MemoryMiB == spec.MemoryMiB/mibPerGiB*mibPerGiB
	percentage := float64(spec.ActiveThreadPercentage)
	if (percentage == 0) != (limits.ActiveThreadPercentage == 0) {
		return false
	}
	return memory && math.Abs(limits.ActiveThreadPercentage-percentage) <= percentageTolerance
}

// setLimits sets the limits of a scope to those of the daemon's spec, and reads them back. A fresh scope has none.
func (d *daemon) setLimits(ctx context.Context, s scope, fresh bool) error {
	spec := d.state.Spec
	var commands []string
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
	var limits gpu.MPSLimits
	for range attempts {
		if len(commands) > 0 {
			if _, err := d.command(ctx, commands...); err != nil {
				return err
			}
		}
		var err error
		if limits, err = d.read(ctx, s); err != nil {
			return err
		}
		if inForce(spec, limits) {
			return nil
		}
	}
	return fmt.Errorf("%s reports %d MiB and %v %% after %d MiB and %d %% were set (0: no limit): %s", s.name, limits.MemoryMiB,
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
	if err := d.setLimits(ctx, byDefault, false); err != nil {
		return d.limitsError("setting", err)
	}
	servers, err := d.servers(ctx)
	for _, pid := range servers {
		if setErr := d.setLimits(ctx, ofServer(pid), false); !errors.Is(setErr, errGone) {
			err = errors.Join(err, setErr)
		}
	}
	d.service.publish(d, true)
	return d.limitsError("setting", err)
}
