package explain

import (
	"cmp"
	"context"
	"slices"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

const (
	// togetherNodes is the number of nodes on which holders of several devices are searched for.
	togetherNodes = 4
	// togetherCalls limits the allocator's calls for a node.
	togetherCalls = 300
	// exactClaims is the number of claims on a node of which all sets may be tried.
	exactClaims = 8
)

// nearestTogether finds the node with the fewest pods in the way of claims for several devices. The allocator confirms each step.
func (r *run) nearestTogether(ctx context.Context, e *Explanation, places []place) error {
	var candidates []releasable
	for i := range places {
		if p := &places[i]; p.held() {
			candidates = append(candidates, releasable{p, r.holdersOn(ctx, p)})
		}
	}
	slices.SortStableFunc(candidates, func(a, b releasable) int { return cmp.Compare(len(a.claims), len(b.claims)) })
	best := r.cheapestOf(ctx, candidates[:min(len(candidates), togetherNodes)])
	if best == nil {
		return ctx.Err()
	}
	q := Question{
		Node: best.place.node, Pools: r.reachable(best.place.node), Claims: best.place.asked.claims, Released: among(best.claims),
	}
	found, err := r.Allocate(ctx, q)
	if err != nil || found == nil {
		return ctx.Err()
	}
	var holders []Holder
	for _, claim := range best.claims {
		holders = append(holders, holderOf(claim, q.Pools))
	}
	sortHolders(holders)
	e.Nearest = r.allocatedNearest(best.place, found, holders)
	return nil
}

// releasable is a node with claims that could be released.
type releasable struct {
	place  *place
	claims []*clusterview.Claim
}

// cheapestOf returns the node with the fewest pods to release, and their claims; nil if there is none.
func (r *run) cheapestOf(ctx context.Context, candidates []releasable) *releasable {
	var best *releasable
	var bestPrice price
	for i := range candidates {
		c := &candidates[i]
		claims, found := []*clusterview.Claim(nil), false
		if len(c.claims) > exactClaims {
			claims, found = r.oneByOne(ctx, c.place)
		}
		if !found {
			claims, found = r.searchTogether(ctx, c.place, c.claims)
		}
		if ctx.Err() != nil {
			return nil
		}
		if p := priceOf(claims); found && (best == nil || p.compare(bestPrice) < 0) {
			best, bestPrice = &releasable{c.place, claims}, p
		}
	}
	return best
}

// holdersOn lists the claims that hold devices of a node that the claims could get.
func (r *run) holdersOn(ctx context.Context, p *place) (claims []*clusterview.Claim) {
	for _, alternatives := range p.asked.wishes {
		for _, w := range alternatives {
			for _, pool := range r.reachable(p.node) {
				reading := r.known(ctx, w, p.asked.reads, p.node, pool)
				if reading.outcome != nil {
					continue
				}
				in := reading.of(pool, p.node, r.Features)
				for _, device := range in.able {
					for _, i := range in.ledger.related(device) {
						if claim := in.ledger.claims[i]; !r.own[claim] && !slices.Contains(claims, claim) {
							claims = append(claims, claim)
						}
					}
				}
			}
		}
	}
	return claims
}

func (r *run) searchTogether(ctx context.Context, p *place, claims []*clusterview.Claim) ([]*clusterview.Claim, bool) {
	limited, cancel := r.limit(ctx)
	defer cancel()
	q := Question{Node: p.node, Pools: r.reachable(p.node), Claims: p.asked.claims}
	s := search{claims: claims, calls: togetherCalls, enough: func(released []bool) bool {
		q.Released = func(c *clusterview.Claim) bool {
			i := slices.Index(claims, c)
			return i >= 0 && released[i]
		}
		fits, err := r.fits(limited, q)
		return err == nil && fits
	}}
	found, ok := s.run()
	if !ok || limited.Err() != nil {
		return nil, false
	}
	released := make([]*clusterview.Claim, len(found))
	for i, index := range found {
		released[i] = claims[index]
	}
	return released, true
}

// oneByOne frees devices for the only request one after the other, the cheapest first, and has the allocator confirm the result.
func (r *run) oneByOne(ctx context.Context, p *place) ([]*clusterview.Claim, bool) {
	a := p.asked
	if len(a.wishes) != 1 || len(a.wishes[0]) != 1 || len(a.claims[0].Spec.Devices.Constraints) > 0 {
		return nil, false
	}
	w := a.wishes[0][0]
	if w.all() || w.admin() {
		return nil, false
	}
	var pools []*pooled
	for _, pool := range r.reachable(p.node) {
		if reading := r.known(ctx, w, a.reads, p.node, pool); reading.outcome == nil {
			in := reading.of(pool, p.node, r.Features)
			pools = append(pools, &pooled{pool: pool, node: p.node, able: r.untainted(w, in), ledger: in.ledger.like(pool, r.Features)})
		}
	}
	var released []*clusterview.Claim
	for range w.request.Count {
		claims, found := r.takeCheapest(w, pools)
		if !found {
			return nil, false
		}
		released = append(released, claims...)
		for _, in := range pools {
			in.ledger.drop(claims)
		}
	}
	fits, err := r.fits(ctx, Question{Node: p.node, Pools: r.reachable(p.node), Claims: a.claims, Released: among(released)})
	return released, err == nil && fits
}

// takeCheapest takes the device that the fewest pods hold, and returns their claims.
func (r *run) takeCheapest(w *wish, pools []*pooled) ([]*clusterview.Claim, bool) {
	var best *pooled
	var bestClaims []*clusterview.Claim
	at := 0
	for _, in := range pools {
		for i, place := range in.able {
			claims, found := in.ledger.cheapest(place, r.demand(w), r.own)
			if found && (best == nil || priceOf(claims).compare(priceOf(bestClaims)) < 0) {
				best, bestClaims, at = in, claims, i
			}
		}
	}
	if best == nil {
		return nil, false
	}
	// A request gets a device once.
	place := best.able[at]
	best.able = slices.Delete(slices.Clone(best.able), at, at+1)
	best.ledger.drop(bestClaims)
	best.ledger.take(place, r.demand(w))
	return bestClaims, true
}

func (r *run) untainted(w *wish, in *pooled) []int {
	return slices.DeleteFunc(slices.Clone(in.able), func(place int) bool { return len(r.untolerated(in.ledger.devices[place].Device, w)) > 0 })
}
