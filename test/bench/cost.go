package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Cost counts the operations for one claim. The numbers do not depend on the machine.
type Cost struct {
	// FileSyncs and DirSyncs count fsyncs of files and of directories; a durable write is one of each.
	FileSyncs, DirSyncs int
	// Programs counts executed programs.
	Programs int
	// NVML counts calls into the driver.
	NVML int
	// Reads and Writes count requests to the API server that the answer needed.
	Reads, Writes int
	// Later counts requests to the API server that the answer did not need.
	Later int
}

// Durable returns the number of durable writes.
func (c Cost) Durable() int { return max(c.FileSyncs, c.DirSyncs) }

// most returns the larger count of each kind.
func (c Cost) most(other Cost) Cost {
	return Cost{
		FileSyncs: max(c.FileSyncs, other.FileSyncs), DirSyncs: max(c.DirSyncs, other.DirSyncs),
		Programs: max(c.Programs, other.Programs), NVML: max(c.NVML, other.NVML),
		Reads: max(c.Reads, other.Reads), Writes: max(c.Writes, other.Writes), Later: max(c.Later, other.Later),
	}
}

// Limit is the budget of a Cost, without the requests after the answer.
type Limit struct{ Durable, Programs, NVML, Reads, Writes int }

// Limits are the budgets of both halves of a claim.
type Limits struct{ Prepare, Unprepare Limit }

// The budgets of a claim on a node whose GPUs are only advertised whole.
var (
	PrepareLimit   = Limit{Durable: 1, Reads: 1}
	UnprepareLimit = Limit{Durable: 2}

	claimLimits = Limits{PrepareLimit, UnprepareLimit}
)

// IntervalLimits are the budgets of a claim that sets the time-slice interval of its GPU: one program sets it, and one restores it.
var IntervalLimits = Limits{Limit{Durable: 2, Programs: 1, Reads: 1}, Limit{Durable: 2, Programs: 1}}

// The budgets of a claim on a GPU that is advertised whole and as MIG devices.
var (
	// WholeLimits: the plugin reads the MIG mode of such a GPU before it allocates it whole.
	WholeLimits = Limits{Limit{Durable: 1, Reads: 1, NVML: 1}, UnprepareLimit}
	// MIGLimits: the plugin records a device before it creates it and identifies it afterwards; it marks a device before it removes it.
	// LastLimits are the budgets of a MIG device that shares its GPU with six others: the plugin reads these before it creates the device,
	// and when it searches for its UUID.
	MIGLimits  = Limits{Limit{Durable: 2, Reads: 1, NVML: 21}, Limit{Durable: 2, NVML: 12}}
	LastLimits = Limits{Limit{Durable: 2, Reads: 1, NVML: 39}, Limit{Durable: 2, NVML: 12}}
)

// rows returns the counts of n claims for one half.
func (l Limit) rows(half string, n int, c Cost) []Row {
	return []Row{
		{Name: half + ": durable writes", Count: c.Durable(), Note: fmt.Sprintf("(%d + %d fsyncs of files + directories)", c.FileSyncs, c.DirSyncs), Budget: AtMost(n * l.Durable)},
		{Name: half + ": programs run", Count: c.Programs, Budget: AtMost(n * l.Programs)},
		{Name: half + ": NVML calls", Count: c.NVML, Budget: AtMost(n * l.NVML)},
		{Name: half + ": API reads before the answer", Count: c.Reads, Budget: AtMost(n * l.Reads)},
		{Name: half + ": API writes before the answer", Count: c.Writes, Budget: AtMost(n * l.Writes)},
		{Name: half + ": API calls after the answer (the claim's status)", Count: c.Later},
	}
}

// Costs are the costs of the most expensive claim, or of claims that are prepared at once.
type Costs struct{ Prepare, Unprepare Cost }

func (c Costs) most(other Costs) Costs {
	return Costs{Prepare: c.Prepare.most(other.Prepare), Unprepare: c.Unprepare.most(other.Unprepare)}
}

// rows returns the counts of n claims.
func (l Limits) rows(n int, c Costs) []Row {
	return append(l.Prepare.rows("prepare", n, c.Prepare), l.Unprepare.rows("unprepare", n, c.Unprepare)...)
}

// period is the time of one call of the kubelet, or of several at once, with its system calls.
type period struct {
	prepare bool
	start   time.Time
	calls   []Syscall
}

// traced prepares and unprepares the claims, atOnce at a time, while it traces the plugin.
func traced(ctx context.Context, p *Plugin, names string, claims []Claim, atOnce int) ([]period, error) {
	var periods []period
	calls, err := Trace(ctx, p.PID, names, func() error {
		for batch := range slices.Chunk(claims, atOnce) {
			periods = append(periods, period{prepare: true, start: time.Now()})
			if _, err := together(batch, func(one Claim) error { return p.Prepare(ctx, one) }); err != nil {
				return err
			}
			periods = append(periods, period{start: time.Now()})
			if _, err := together(batch, func(one Claim) error { return p.Unprepare(ctx, one) }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	attribute(calls, periods)
	return periods, nil
}

// attribute assigns each system call to the period in which it began. A call between two periods belongs to the earlier one: deferred work
// is not cheaper.
func attribute(calls []Syscall, periods []period) {
	for _, call := range calls {
		i, found := slices.BinarySearchFunc(periods, call.Began, func(p period, t time.Time) int { return p.start.Compare(t) })
		if !found {
			i--
		}
		if i >= 0 {
			periods[i].calls = append(periods[i].calls, call)
		}
	}
}

// CountSyscalls prepares and unprepares the claims, atOnce at a time, and returns the cost of the most expensive batch.
func CountSyscalls(ctx context.Context, p *Plugin, claims []Claim, atOnce int) (Costs, error) {
	periods, err := traced(ctx, p, tracedSyncs, claims, atOnce)
	return dearest(periods), err
}

func dearest(periods []period) (costs Costs) {
	for _, p := range periods {
		var c Cost
		for _, call := range p.calls {
			c.add(call)
		}
		if p.prepare {
			costs.Prepare = costs.Prepare.most(c)
		} else {
			costs.Unprepare = costs.Unprepare.most(c)
		}
	}
	return costs
}

// add counts one system call. A path with an extension is a file; directories of records have none.
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

// CountNVML returns the number of NVML calls that the plugin makes to prepare and to unprepare a claim: the minimum of several claims, one
// after the other, because the plugin also inspects its GPUs in between.
func CountNVML(ctx context.Context, driver NVML, p *Plugin, claims []Claim) (costs Costs, err error) {
	fewest := func(into *int, call Between, claim Claim, first bool) error {
		before, err := driver.Calls(p.PID)
		if err != nil {
			return err
		}
		if err := call(ctx, claim); err != nil {
			return err
		}
		after, err := driver.Calls(p.PID)
		if n := after - before; first || n < *into {
			*into = n
		}
		return err
	}
	for i, claim := range claims {
		if err := fewest(&costs.Prepare.NVML, p.Prepare, claim, i == 0); err != nil {
			return costs, fmt.Errorf("counting NVML calls: %w", err)
		}
		if err := fewest(&costs.Unprepare.NVML, p.Unprepare, claim, i == 0); err != nil {
			return costs, fmt.Errorf("counting NVML calls: %w", err)
		}
	}
	return costs, nil
}
