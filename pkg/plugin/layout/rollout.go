package layout

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/backoff"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// taintTime is how long the taints of leaving devices must have been seen before claims are checked: a scheduler that has not received the
// taint yet may allocate the device until then, and by then the claim records the allocation.
const taintTime = 5 * time.Second

// A GPU with devices in use, or whose check failed, is checked again after checkFirst, twice as long each time up to checkMax: a check
// reads all claims of the cluster. Each GPU backs off by itself.
const (
	checkFirst = time.Second
	checkMax   = 30 * time.Second
)

// Phase is the phase of a GPU's change of layout.
type Phase int

const (
	// Stable means that the GPU is advertised as desired.
	Stable Phase = iota
	// Draining means that some of its devices leave. They are tainted, and the API server has not stored all of the taints for taintTime yet.
	Draining
	// AwaitingRelease means that leaving devices are not allocated to new claims. The layout changes when no record and no allocated claim names a device that leaves.
	AwaitingRelease
)

// Transition is the effect of Aim on the change of a GPU.
type Transition int

const (
	// Unchanged means that the phase is the same as before.
	Unchanged Transition = iota
	// Began leads from Stable, or from another change, to Draining.
	Began
	// Ended leads to Stable.
	Ended
)

// Rollout holds the current and the target layouts of the GPUs of a node. Each GPU goes through the phases by itself:
//
//	Stable ──Aim──▶ Draining ──Tainted──▶ AwaitingRelease ──Complete──▶ Stable
//
// Aim at the current layout ends a change, Aim at another layout begins another change, and lost taints lead back to Draining. Devices that
// only join are advertised without phases. A restart continues with the saved layouts, and waits for the taints again.
//
// It uses no clock and no I/O: facts and the time are passed in. It is not safe for concurrent use.
type Rollout struct {
	node string
	// current holds the present layouts, before the limits of hardware and API server; it is empty until the first Aim.
	current gpu.Layout
	changes changes
}

// changes are the changes by GPU.
type changes map[gpu.UUID]*change

// change is a GPU whose layout is to change.
type change struct {
	to      gpu.Modes
	leaving map[gpu.PoolDevice]bool
	// tainted is since when all taints have been seen; zero while they are not.
	tainted time.Time
	// check is the time from which the API server may be called for this GPU.
	check backoff.Backoff
	// begun is when the change was first desired. Recorded and allocated are the leaving devices that were in use when records and claims
	// were read last.
	begun               time.Time
	recorded, allocated []gpu.PoolDevice
	reminded            bool
}

// Facts are the inputs of Aim besides the state of the GPU.
type Facts struct {
	Records []*checkpoint.Record
	// Limit reduces a layout if the API server cannot keep its devices apart.
	Limit func(gpu.Modes) gpu.Modes
	Now   time.Time
}

// NewRollout returns the rollout of a node without layouts.
func NewRollout(node string) *Rollout {
	return &Rollout{node: node, current: gpu.Layout{}, changes: changes{}}
}

// Aim sets the desired layout of a GPU and returns its present layout, limit applied. A GPU that was never advertised before is advertised
// so at once. Claims with a record always find their devices. Settings that belong to no device apply at once, also while devices leave.
func (r *Rollout) Aim(g *gpu.GPU, to gpu.Modes, facts Facts) (advertised gpu.Modes, t Transition) {
	now, known := r.current[g.UUID]
	if !known {
		now = to
	}
	now = keep(r.node, g, gpu.Layout{g.UUID: now}, facts.Records).WithSettings(to)
	after := facts.Limit(of(g, to))
	advertised = facts.Limit(of(g, now))
	leaving := leaves(r.node, g, advertised, after)
	before, changing := r.changes[g.UUID]
	if len(leaving) == 0 {
		delete(r.changes, g.UUID)
		r.current[g.UUID] = to
		if changing {
			return after, Ended
		}
		return after, Unchanged
	}
	r.current[g.UUID] = now
	if changing && before.to.Equal(to) && maps.Equal(before.leaving, leaving) {
		before.to = to // it may have other settings
		return advertised, Unchanged
	}
	r.changes[g.UUID] = &change{
		to: to, leaving: leaving, begun: facts.Now, check: backoff.Backoff{First: checkFirst, Max: checkMax},
	}
	return advertised, Began
}

// Target is the target layout of a GPU, or else its current one; false for a GPU that was never advertised.
func (r *Rollout) Target(id gpu.UUID) (gpu.Modes, bool) {
	if c, changing := r.changes[id]; changing {
		return c.to, true
	}
	as, known := r.current[id]
	return as, known
}

// Retain drops the changes of GPUs that are not among these, as they are not published. They are aimed again when they return.
func (r *Rollout) Retain(gpus []gpu.GPU) {
	maps.DeleteFunc(r.changes, func(id gpu.UUID, _ *change) bool {
		return !slices.ContainsFunc(gpus, func(g gpu.GPU) bool { return g.UUID == id })
	})
}

// Leaving lists everything that leaves some GPU.
func (r *Rollout) Leaving() map[gpu.PoolDevice]bool {
	all := map[gpu.PoolDevice]bool{}
	for _, c := range r.changes {
		maps.Copy(all, c.leaving)
	}
	return all
}

// Phase returns the phase of a GPU.
func (r *Rollout) Phase(id gpu.UUID, now time.Time) Phase {
	c, changing := r.changes[id]
	switch {
	case !changing:
		return Stable
	case c.tainted.IsZero() || now.Sub(c.tainted) < taintTime:
		return Draining
	default:
		return AwaitingRelease
	}
}

// Tainted records which leaving devices are tainted in the stored ResourceSlices: all stored ones must be tainted. With a server that
// stores no taints the phase continues without them.
func (r *Rollout) Tainted(stored map[gpu.PoolDevice]bool, taints bool, now time.Time) {
	for _, c := range r.changes {
		all := true
		for place := range c.leaving {
			tainted, there := stored[place]
			all = all && (tainted || !there || !taints)
		}
		switch {
		case !all:
			c.tainted = time.Time{}
		case c.tainted.IsZero():
			c.tainted = now
		}
	}
}

// Unrecorded lists the GPUs of whose leaving devices no record names one.
func (r *Rollout) Unrecorded(records []*checkpoint.Record) []gpu.UUID {
	held := map[gpu.PoolDevice]bool{}
	for _, record := range records {
		for i := range record.Results {
			if result := &record.Results[i]; !result.Admin {
				held[gpu.PoolDevice{Pool: result.Pool, Device: gpu.DeviceName(result.Device)}] = true
			}
		}
	}
	return r.changes.where(func(c *change) bool {
		c.recorded = common(c.leaving, held)
		return len(c.recorded) == 0
	})
}

// Defer postpones the next check of GPUs whose devices are not released. A check of some GPUs also counts for the others, whose next check
// is no sooner than after a check of their own.
func (r *Rollout) Defer(ids []gpu.UUID, answered bool, now time.Time) {
	for _, id := range ids {
		c, changing := r.changes[id]
		switch {
		case !changing:
		case c.check.Due(now):
			c.check.Defer(now)
		case answered:
			c.check.Postpone(now)
		}
	}
}

// checkNow makes a check of every GPU due.
func (all changes) checkNow() {
	for _, c := range all {
		c.check.Reset()
	}
}

// where lists the GPUs whose changes match.
func (all changes) where(is func(c *change) bool) []gpu.UUID {
	var found []gpu.UUID
	for id, c := range all {
		if is(c) {
			found = append(found, id)
		}
	}
	return found
}

// Complete makes layouts the current ones, as they were saved. The changes of their GPUs end when they are aimed next.
func (r *Rollout) Complete(layouts gpu.Layout) { maps.Copy(r.current, layouts) }

// of is a layout of a GPU with the additions from the GPU's state.
func of(g *gpu.GPU, as gpu.Modes) gpu.Modes { return gpu.Layout{g.UUID: as}.Of(g) }

// leaves lists the devices of the first layout that the second one does not have, or has with other properties.
func leaves(node string, g *gpu.GPU, now, after gpu.Modes) map[gpu.PoolDevice]bool {
	stay := map[gpu.PoolDevice]gpu.Device{}
	for _, d := range after.Devices(g) {
		stay[gpu.PoolDevice{Pool: after.Pool(node, g), Device: d.Name()}] = d
	}
	leave := map[gpu.PoolDevice]bool{}
	for _, d := range now.Devices(g) {
		place := gpu.PoolDevice{Pool: now.Pool(node, g), Device: d.Name()}
		if !reflect.DeepEqual(d, stay[place]) {
			leave[place] = true
		}
	}
	return leave
}

func overlap(a, b map[gpu.PoolDevice]bool) bool { return len(common(a, b)) > 0 }

// common lists the elements of both.
func common(a, b map[gpu.PoolDevice]bool) []gpu.PoolDevice {
	var both []gpu.PoolDevice
	for place := range a {
		if b[place] {
			both = append(both, place)
		}
	}
	return both
}
