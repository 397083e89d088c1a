package explain

import (
	"context"
	"fmt"
	"math"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// counted is the result of counting devices, before the allocator is asked.
type counted struct {
	// first explains a request for which the node has too few devices; nil if there is none.
	first *outcome
	// enough is false if too few devices are free for a request: the allocator need not be asked, since its search would try all
	// combinations of them.
	enough bool
	// failing reports whether the allocator may return an error, because of which the scheduler tries no other node.
	failing bool
}

// countAll counts the devices for each request.
func (r *run) countAll(ctx context.Context, a *asked, node *clusterview.Node, pools []*clusterview.Pool) counted {
	c := counted{enough: true}
	for _, alternatives := range a.wishes {
		one := r.countAlternatives(ctx, a, alternatives, node, pools)
		c.enough, c.failing = c.enough && one.enough, c.failing || one.failing
		if one.first == nil || c.first != nil && rank[one.first.cause] >= rank[c.first.cause] {
			continue
		}
		c.first = one.first
		if len(alternatives) > 1 && len(a.wishes) == 1 {
			c.first = r.alternatives(ctx, a, node, pools, one.first)
		}
	}
	return c
}

// countAlternatives counts the devices for a request, which one of its subrequests satisfies.
func (r *run) countAlternatives(
	ctx context.Context, a *asked, alternatives []*wish, node *clusterview.Node, pools []*clusterview.Pool,
) (c counted) {
	possible := false
	for _, w := range alternatives {
		o, free, failing := r.countOne(ctx, a, w, node, pools)
		c.enough, c.failing, possible = c.enough || free, c.failing || failing, possible || o == nil
		if o != nil && (c.first == nil || rank[o.cause] > rank[c.first.cause]) {
			c.first = o
		}
	}
	if possible {
		c.first = nil
	}
	return c
}

// countOne explains a request that a node can never satisfy; nil if it can. Free reports whether enough devices are free, each by itself,
// failing whether the allocator may return an error.
func (r *run) countOne(
	ctx context.Context, a *asked, w *wish, node *clusterview.Node, pools []*clusterview.Pool,
) (o *outcome, free, failing bool) {
	merged := &outcome{cause: NoDevices}
	able, usable, incomplete := 0, 0, false
	for _, p := range pools {
		in := r.known(ctx, w, a.reads, node, p)
		if in.outcome != nil {
			merged = merged.merge(in.outcome)
			incomplete = incomplete || in.outcome.cause == PoolIncomplete
		}
		if in.pooled == nil {
			continue
		}
		failing = failing || in.err != nil
		able += len(in.able)
		usable += r.bound(w, in.pooled)
	}
	if w.all() && (incomplete || able > resourceapi.AllocationResultsMaxSize) || failing {
		return nil, true, true
	}
	wanted := int(w.request.Count)
	switch {
	case able == 0:
		merged.detail = r.labelled(a, w, r.detailOf(merged, w))
		return merged, false, false
	case able < wanted:
		detail := fmt.Sprintf("%s: %d devices are requested, and the node has %d that match", r.label(a, w), wanted, able)
		return &outcome{cause: Count, detail: detail}, false, false
	default:
		return nil, w.all() || w.admin() || usable >= wanted, false
	}
}

// labelled begins a detail with the name of its request, if there are several.
func (r *run) labelled(a *asked, w *wish, detail string) string {
	if len(a.wishes) > 1 && detail != "" {
		return r.label(a, w) + ": " + detail
	}
	return detail
}

// bound is at least the number of devices of a pool that a request can get at once.
func (r *run) bound(w *wish, in *pooled) int {
	released, m := make([]bool, len(in.ledger.claims)), r.demand(w)
	count, counted := 0, 0
	least := math.Inf(1)
	for _, place := range in.able {
		e := &in.ledger.devices[place]
		if len(r.untolerated(e.Device, w)) > 0 || !in.ledger.usable(place, m, released) {
			continue
		}
		if len(e.needs) == 0 || e.sharing {
			count++
			continue
		}
		counted++
		least = math.Min(least, in.ledger.part(e.needs))
	}
	if counted == 0 || least <= 0 {
		return count + counted
	}
	// Devices that consume at least this part of the counters cannot be more than those parts in the rest.
	const rounding = 1e-6
	return count + min(counted, int(in.ledger.rest()/least+rounding))
}

// part is the sum of the parts of the pool's counters that needs are.
func (l *ledger) part(needs []need) float64 {
	sum := 0.0
	for _, n := range needs {
		if l.total[n.counter] > 0 {
			sum += float64(n.amount) / float64(l.total[n.counter])
		}
	}
	return sum
}

// rest is the sum of the parts of the pool's counters that are free.
func (l *ledger) rest() float64 {
	all := make([]need, len(l.total))
	for i := range l.total {
		all[i] = need{i, l.total[i]}
	}
	sum := l.part(all)
	for _, place := range l.used {
		sum -= l.part(l.devices[place].needs)
	}
	return sum
}
