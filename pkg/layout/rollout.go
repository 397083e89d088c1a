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

// taintTime is how long what leaves must have been seen tainted before claims are checked: a scheduler that does not know the taint yet may
// allocate it until then, and the claim says so by then.
const taintTime = 5 * time.Second

// What was found in use, or could not be found out, is checked again after checkFirst, twice as long each time up to checkMax: a check reads
// all claims of the cluster. Each GPU is checked for itself.
const (
	checkFirst = time.Second
	checkMax   = 30 * time.Second
)

// Phase is how far a GPU's change of layout is.
type Phase int

const (
	// Stable means that the GPU is advertised as desired.
	Stable Phase = iota
	// Draining means that some of its devices leave. They are tainted, and the API server has not stored all of the taints for taintTime yet.
	Draining
	// AwaitingRelease means that new claims do not get what leaves. The layout changes when no record and no allocated claim names a device that leaves.
	AwaitingRelease
)

// Transition is what became of a GPU's change when it was aimed at a layout.
type Transition int

const (
	// Unchanged means that the phase is the one of before.
	Unchanged Transition = iota
	// Began leads from Stable, or from another change, to Draining.
	Began
	// Ended leads to Stable.
	Ended
)

// Rollout is what the GPUs of a node are advertised as now, and on their way to. Each GPU goes through the phases by itself:
//
//	Stable ──Aim──▶ Draining ──Tainted──▶ AwaitingRelease ──Complete──▶ Stable
//
// Aim at what is advertised already ends a change, Aim at something else begins another, and taints that have gone again lead back to
// Draining. What only joins needs no phases. A restart goes on with the layouts that were saved; the taints are waited for again.
//
// It has no clock and no I/O: what is known, and the time, are passed in. It is not safe for concurrent use.
type Rollout struct {
	node string
	// current has what is advertised now, without what hardware and API server make of it; it is empty where nothing is known.
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
	// check is when the API server may be called for this GPU.
	check backoff.Backoff
	// begun is when the change was desired first. Recorded and allocated are those of the leaving devices that were in use when records and
	// claims were read last.
	begun               time.Time
	recorded, allocated []gpu.PoolDevice
	reminded            bool
}

// Facts is what decides about a GPU besides its own state.
type Facts struct {
	Records []*checkpoint.Record
	// Limit is what is left of a layout where the API server cannot keep its devices apart.
	Limit func(gpu.Modes) gpu.Modes
	Now   time.Time
}

// NewRollout returns the rollout of a node of which nothing is known.
func NewRollout(node string) *Rollout {
	return &Rollout{node: node, current: gpu.Layout{}, changes: changes{}}
}

// Aim sets what a GPU is to be advertised as and returns what it is advertised as now, limit applied. A GPU that was never advertised before
// is advertised so at once. Claims with a record always find their devices.
func (r *Rollout) Aim(g *gpu.GPU, to gpu.Modes, facts Facts) (advertised gpu.Modes, t Transition) {
	now, known := r.current[g.UUID]
	if !known {
		now = to
	}
	now = keep(r.node, g, gpu.Layout{g.UUID: now}, facts.Records)
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
		return advertised, Unchanged
	}
	r.changes[g.UUID] = &change{
		to: to, leaving: leaving, begun: facts.Now, check: backoff.Backoff{First: checkFirst, Max: checkMax},
	}
	return advertised, Began
}

// Target is what a GPU is on its way to, or else is advertised as; false for a GPU that was never advertised.
func (r *Rollout) Target(id gpu.UUID) (gpu.Modes, bool) {
	if c, changing := r.changes[id]; changing {
		return c.to, true
	}
	as, known := r.current[id]
	return as, known
}

// Retain forgets the changes of GPUs that are not among these: nothing of them is published. They are aimed again when they return.
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

// Phase is how far a GPU is.
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

// Tainted takes note of which of what leaves is tainted in what the API server has stored: all that is stored there must be. A server that
// stores no taints has to do without.
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

// Defer puts the next check of GPUs off whose devices are not released. A check that was answered for some of them is one of the others too, which
// then need none sooner than they would have after one of their own.
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

// where lists the GPUs whose changes are so.
func (all changes) where(is func(c *change) bool) []gpu.UUID {
	var found []gpu.UUID
	for id, c := range all {
		if is(c) {
			found = append(found, id)
		}
	}
	return found
}

// Complete makes layouts the ones of now, as they were saved. The changes of their GPUs end when they are aimed next.
func (r *Rollout) Complete(layouts gpu.Layout) { maps.Copy(r.current, layouts) }

// of is a layout of a GPU with what the GPU's state adds to it.
func of(g *gpu.GPU, as gpu.Modes) gpu.Modes { return gpu.Layout{g.UUID: as}.Of(g) }

// leaves lists what claims may have of the first layout and do not find, or not as it was, in the second one.
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

// common lists what is in both.
func common(a, b map[gpu.PoolDevice]bool) []gpu.PoolDevice {
	var both []gpu.PoolDevice
	for place := range a {
		if b[place] {
			both = append(both, place)
		}
	}
	return both
}
