package driver

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// settleTime is how long what leaves must be seen tainted before claims are looked at: a scheduler that has not heard of the taint
// may have handed it out until then, and the claim says so by then.
const settleTime = 5 * time.Second

// transition is what the GPUs of a node are offered as now, and on their way to. A GPU goes through these states, alone:
//
//	settled     it is offered as the configuration says
//	draining    some of its devices leave: they are tainted, and it is not known yet that the API server has the taints
//	tainted     the API server has had the taints for less than settleTime, or a record or an allocated claim names what leaves
//	settled     neither did, so the new offer took the place of the old one
//
// What only joins needs no waiting. A restart goes on with the offers that were saved; the taints are waited for again.
// It knows no lock: its Offering has one.
type transition struct {
	node string
	// current has what is offered now, without what hardware and API server make of it; it is nil where nothing is known.
	current gpu.Layout
	changes map[gpu.UUID]*change
}

// change is a GPU whose offer is to change.
type change struct {
	to      gpu.Offer
	leaving map[gpu.PoolDevice]bool
	// since is when all taints were seen first; zero before that.
	since time.Time
	// next is when the API server may be asked about this GPU again, and wait how long that was put off.
	next time.Time
	wait time.Duration
	// begun is when it was wanted first. Recorded and allocated are those of the leaving devices that were in use when records and claims
	// were read last, and reminded is whether the administrator was told.
	begun               time.Time
	recorded, allocated []gpu.PoolDevice
	reminded            bool
}

// What was found in use, or could not be found out, is asked for again after askFirst, twice as long each time up to askMax: a
// question reads all claims of the cluster. Each GPU waits for itself alone.
const (
	askFirst = time.Second
	askMax   = 30 * time.Second
)

// limits is what the API server makes of an offer: one without counters cannot keep devices apart.
type limits func(gpu.Offer) gpu.Offer

// aim sets what a GPU is to be offered as and returns what it is offered as now, limits applied. A GPU that was never offered before is
// offered so at once. Claims with a record always find their devices.
func (t *transition) aim(g *gpu.GPU, to gpu.Offer, records []*checkpoint.Record, limit limits) gpu.Offer {
	now, known := t.current[g.UUID]
	if !known {
		now = to
	}
	now = keep(t.node, g, gpu.Layout{g.UUID: now}, records)
	after := limit(of(g, to))
	offered := limit(of(g, now))
	leaving := t.leaving(g, offered, after)
	if len(leaving) == 0 {
		t.settle(g, to)
		return after
	}
	t.current[g.UUID] = now
	before, changing := t.changes[g.UUID]
	if changing && before.to.Equal(to) && sameDevices(before.leaving, leaving) {
		return offered
	}
	klog.Background().Info("A GPU is to be offered otherwise as soon as nobody has what leaves", "gpu", g.UUID, "leaving", len(leaving))
	t.changes[g.UUID] = &change{to: to, leaving: leaving, begun: time.Now()}
	return offered
}

// last is what a GPU is on its way to, or else is offered as; false for a GPU that was never offered.
func (t *transition) last(id gpu.UUID) (gpu.Offer, bool) {
	if c, changing := t.changes[id]; changing {
		return c.to, true
	}
	offer, known := t.current[id]
	return offer, known
}

// settle makes the offer the one of now.
func (t *transition) settle(g *gpu.GPU, to gpu.Offer) {
	if _, changing := t.changes[g.UUID]; changing {
		klog.Background().Info("A GPU is offered as the node's configuration says", "gpu", g.UUID)
	}
	delete(t.changes, g.UUID)
	t.current[g.UUID] = to
}

// only forgets the changes of GPUs that are not there: nothing of them is published. They are aimed anew when they return.
func (t *transition) only(gpus []gpu.GPU) {
	maps.DeleteFunc(t.changes, func(id gpu.UUID, _ *change) bool {
		return !slices.ContainsFunc(gpus, func(g gpu.GPU) bool { return g.UUID == id })
	})
}

// of is an offer with what the GPU's state adds to it.
func of(g *gpu.GPU, offer gpu.Offer) gpu.Offer { return gpu.Layout{g.UUID: offer}.Of(g) }

// leaving lists what claims may have of the first offer and do not find, or not as it was, in the second one.
func (t *transition) leaving(g *gpu.GPU, now, after gpu.Offer) map[gpu.PoolDevice]bool {
	stay := map[gpu.PoolDevice]gpu.Device{}
	for _, d := range after.Devices(g) {
		stay[gpu.PoolDevice{Pool: after.Pool(t.node, g), Device: d.Name()}] = d
	}
	leave := map[gpu.PoolDevice]bool{}
	for _, d := range now.Devices(g) {
		place := gpu.PoolDevice{Pool: now.Pool(t.node, g), Device: d.Name()}
		if !reflect.DeepEqual(d, stay[place]) {
			leave[place] = true
		}
	}
	return leave
}

// all lists everything that leaves some GPU.
func (t *transition) all() map[gpu.PoolDevice]bool {
	all := map[gpu.PoolDevice]bool{}
	for _, c := range t.changes {
		for place := range c.leaving {
			all[place] = true
		}
	}
	return all
}

// unrecorded are the changes of which no record names what leaves.
func (t *transition) unrecorded(records []*checkpoint.Record) []gpu.UUID {
	held := map[gpu.PoolDevice]bool{}
	for _, r := range records {
		for i := range r.Results {
			if result := &r.Results[i]; !result.Admin {
				held[gpu.PoolDevice{Pool: result.Pool, Device: gpu.DeviceName(result.Device)}] = true
			}
		}
	}
	return t.where(func(c *change) bool {
		c.recorded = common(c.leaving, held)
		return len(c.recorded) == 0
	})
}

// asking tells whether the API server may be asked about a GPU.
func (c *change) asking(now time.Time) bool { return !now.Before(c.next) }

// later puts the next question about GPUs off that are not free. An answer to a question about some of them tells of the others, which
// then need to ask no sooner than they would have after one of their own.
func (t *transition) later(ids []gpu.UUID, answered bool, now time.Time) {
	for _, id := range ids {
		c, changing := t.changes[id]
		if !changing {
			continue
		}
		asked := c.asking(now)
		if asked {
			c.wait = min(max(2*c.wait, askFirst), askMax)
		}
		if asked || answered {
			c.next = now.Add(c.wait)
		}
	}
}

// soon lets all questions be asked at once.
func (t *transition) soon() {
	for _, c := range t.changes {
		c.next, c.wait = time.Time{}, 0
	}
}

// where lists the GPUs whose changes are so.
func (t *transition) where(is func(*change) bool) []gpu.UUID {
	var found []gpu.UUID
	for id, c := range t.changes {
		if is(c) {
			found = append(found, id)
		}
	}
	return found
}

// taint notes which of what leaves carries its taint in what the API server has: all that is published there must. A server that
// keeps no taints has to do without.
func (t *transition) taint(published map[gpu.PoolDevice]bool, kept bool, now time.Time) {
	for _, c := range t.changes {
		all := true
		for place := range c.leaving {
			tainted, there := published[place]
			all = all && (tainted || !there || !kept)
		}
		switch {
		case !all:
			c.since = time.Time{}
		case c.since.IsZero():
			c.since = now
		}
	}
}

// due tells whether a GPU's taints are old enough.
func (t *transition) due(id gpu.UUID, now time.Time) bool {
	c, changing := t.changes[id]
	return changing && !c.since.IsZero() && now.Sub(c.since) >= settleTime
}

func overlap(a, b map[gpu.PoolDevice]bool) bool {
	for place := range a {
		if b[place] {
			return true
		}
	}
	return false
}

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

func sameDevices(a, b map[gpu.PoolDevice]bool) bool {
	for place := range a {
		if !b[place] {
			return false
		}
	}
	return len(a) == len(b)
}
