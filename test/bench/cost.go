package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Cost is what is done for one claim, in numbers that do not depend on the machine.
type Cost struct {
	// FileSyncs and DirSyncs are fsyncs of files and of directories; a durable write is one of each.
	FileSyncs, DirSyncs int
	// Programs are programs run.
	Programs int
	// NVML are calls into the driver.
	NVML int
	// Reads and Writes are requests to the API server that the answer needed.
	Reads, Writes int
	// Later are requests to the API server that the answer did not need.
	Later int
}

// Durable is the number of durable writes.
func (c Cost) Durable() int { return max(c.FileSyncs, c.DirSyncs) }

// most returns the larger number of each kind.
func (c Cost) most(other Cost) Cost {
	return Cost{
		FileSyncs: max(c.FileSyncs, other.FileSyncs), DirSyncs: max(c.DirSyncs, other.DirSyncs),
		Programs: max(c.Programs, other.Programs), NVML: max(c.NVML, other.NVML),
		Reads: max(c.Reads, other.Reads), Writes: max(c.Writes, other.Writes), Later: max(c.Later, other.Later),
	}
}

// Limit is the budget of a Cost. What comes after the answer has none.
type Limit struct{ Durable, Programs, NVML, Reads, Writes int }

// The budgets of a claim on a node whose GPUs are only offered whole.
var (
	PrepareLimit   = Limit{Durable: 1, Reads: 1}
	UnprepareLimit = Limit{Durable: 2}
)

// Exceeded names what is dearer than the budget; empty when nothing is.
func (l Limit) Exceeded(c Cost) string {
	var over []string
	for _, one := range []struct {
		what       string
		got, limit int
	}{
		{"durable writes", c.Durable(), l.Durable},
		{"programs run", c.Programs, l.Programs},
		{"NVML calls", c.NVML, l.NVML},
		{"API reads before the answer", c.Reads, l.Reads},
		{"API writes before the answer", c.Writes, l.Writes},
	} {
		if one.got > one.limit {
			over = append(over, fmt.Sprintf("%d %s, not %d", one.got, one.what, one.limit))
		}
	}
	return strings.Join(over, "; ")
}

// Costs are the costs of the dearest of some claims.
type Costs struct{ Prepare, Unprepare Cost }

// period is one call of the kubelet.
type period struct {
	prepare    bool
	start, end time.Time
}

// CountSyscalls prepares and unprepares the claims one after the other while the plugin is traced.
func CountSyscalls(ctx context.Context, p *Plugin, claims []Claim) (Costs, error) {
	var periods []period
	during := func(prepare bool, call func() error) error {
		start := time.Now()
		err := call()
		periods = append(periods, period{prepare, start, time.Now()})
		return err
	}
	calls, err := Trace(ctx, p.PID, func() error {
		for _, claim := range claims {
			if err := during(true, func() error { return p.Prepare(ctx, claim) }); err != nil {
				return err
			}
			if err := during(false, func() error { return p.Unprepare(ctx, claim) }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Costs{}, err
	}
	return attribute(calls, periods), nil
}

// attribute gives each system call to the period it began in. What began between two calls of the kubelet belongs to the one
// before: work does not get cheaper by being put off.
func attribute(calls []Syscall, periods []period) Costs {
	each := make([]Cost, len(periods))
	for _, call := range calls {
		i, found := slices.BinarySearchFunc(periods, call.Began, func(p period, t time.Time) int { return p.start.Compare(t) })
		if !found {
			i--
		}
		if i >= 0 {
			each[i].add(call)
		}
	}
	var costs Costs
	for i, p := range periods {
		if p.prepare {
			costs.Prepare = costs.Prepare.most(each[i])
		} else {
			costs.Unprepare = costs.Unprepare.most(each[i])
		}
	}
	return costs
}

// add counts one system call. Files that are synced are named; directories of records have no extension.
func (c *Cost) add(call Syscall) {
	switch {
	case strings.HasPrefix(call.Name, "exec"):
		c.Programs++
	case call.Name == "fsync" && !strings.Contains(call.Arguments, ".json"):
		c.DirSyncs++
	default:
		c.FileSyncs++
	}
}

// nvmlWindows are so many because the plugin looks at its GPUs every 10 s: one window may hold such a look, not all of them.
const nvmlWindows = 3

// CountNVML returns how many NVML calls the plugin makes while it prepares and unprepares the claims.
func CountNVML(ctx context.Context, driver NVML, p *Plugin, claims []Claim) (int, error) {
	fewest := 0
	for window := range nvmlWindows {
		before, err := driver.Calls(p.PID)
		if err != nil {
			return 0, err
		}
		for _, claim := range claims {
			if err := p.Prepare(ctx, claim); err != nil {
				return 0, err
			}
			if err := p.Unprepare(ctx, claim); err != nil {
				return 0, err
			}
		}
		after, err := driver.Calls(p.PID)
		if err != nil {
			return 0, err
		}
		if n := after - before; window == 0 || n < fewest {
			fewest = n
		}
	}
	return fewest, nil
}
