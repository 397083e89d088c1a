package bench

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Report is everything that one run found out.
type Report struct {
	// Machine, Load and Versions say where: hardware and kernel, how busy it was, what was measured.
	Machine, Load, Versions string
	// Floor is what the machine takes for what cannot be avoided.
	Floor Floor
	// Single and Parallel are the waits of the kubelet: one call at a time, and one per GPU at once.
	Single, Parallel Latency
	// Burst is many more calls at once than there are GPUs.
	Burst Burst
	// Alone and Crowded are one call at a time, measured in turn without other claims and beside Crowd of them.
	Alone, Crowded Beside
	// HandOff is how long a lock takes from one process to another.
	HandOff Samples
	// Costs are the counts of one claim, each the worst seen.
	Costs Costs
	// Change is what another configuration of the node costs.
	Change Change
	// ClaimList is what it takes to read all claims of a cluster, as a change needs it.
	ClaimList ClaimList
	// MIG is what slices of GPUs cost.
	MIG MIG
	// Process is what the plugin itself takes.
	Process Process
}

// Process is what the plugin's process takes.
type Process struct {
	// Idle is before the first claim, Used after all of them.
	Idle, Used Memory
	// FirstStart is from birth to the first answer on a new node, Restarts are beside few and many claims.
	FirstStart time.Duration
	Restarts   []Restart
	// Wiped is how long slices stay away that others deleted.
	Wiped Samples
}

// peersMeasured is when the figures of other drivers were taken, on the same kind of node, with the same calls.
const peersMeasured = "2026-11-20"

// The budgets of times and memory. They are no assertions: they depend on the machine, and on what else it does.
const (
	parallelPrepareBudget   = 15 * time.Millisecond
	parallelUnprepareBudget = 6 * time.Millisecond
	handOffBudget           = 2 * time.Millisecond
	restartBudget           = 300 * time.Millisecond
	memoryBudget            = 40 << 20
	// sliceBudget is for what is not the driver's time of one slice, makespanBudget for slices of different GPUs at once, in times
	// of the driver's own on one GPU.
	sliceBudget    = 5 * time.Millisecond
	makespanBudget = 1.3
)

// Problems returns the counts that exceed their budgets, nil when none does.
func (r *Report) Problems() error {
	problems := claimLimits.exceeded("a claim", 1, r.Costs)
	problems = append(problems, claimLimits.exceeded(fmt.Sprintf("%d claims at once", BurstClaims), BurstClaims, r.Burst.Costs)...)
	problems = append(problems, grown(r.Alone, r.Crowded)...)
	for _, restart := range r.Process.Restarts {
		problems = append(problems, restart.exceeded()...)
	}
	problems = append(problems, r.ClaimList.exceeded()...)
	for _, one := range []struct {
		what   string
		limits Limits
		costs  Costs
	}{
		{"a whole GPU that could be cut", WholeLimits, r.MIG.Whole},
		{"a share of a GPU that could be cut", WholeLimits, r.MIG.Turns.Cost},
		{"a slice", SliceLimits, r.MIG.Slice},
		{"the last slice of a GPU", LastLimits, r.MIG.Last},
	} {
		problems = append(problems, one.limits.exceeded(one.what, 1, one.costs)...)
	}
	return errors.Join(problems...)
}

// Markdown writes the report as tables.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. %s; load %s at start.\n", r.Versions, r.Machine, r.Load)
	r.floor(&b)
	r.latency(&b)
	r.burst(&b)
	r.counts(&b)
	r.crowd(&b)
	r.restarts(&b)
	r.process(&b)
	r.change(&b)
	r.claimList(&b)
	r.turns(&b)
	r.slices(&b)
	r.atOnce(&b)
	r.sliceCounts(&b)
	fmt.Fprintf(&b, "\n¹ Other drivers: measured on %s on the same kind of node, with the same calls.\n", peersMeasured)
	_, err := io.WriteString(w, b.String())
	return err
}
