package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// asked are claims to allocate together.
type asked struct {
	claims []*resourceapi.ResourceClaim
	// wishes are the requests of all claims, each with its alternatives.
	wishes [][]*wish
	// one is set for one request for one device.
	one   *wish
	reads clusterview.Reads
}

func (r *run) asked(claims []*resourceapi.ResourceClaim) *asked {
	a := &asked{claims: claims, reads: r.reads(r.matcher, claims)}
	for _, claim := range claims {
		a.wishes = append(a.wishes, r.wishes(r.matcher, claim)...)
	}
	a.one = single(claims, a.wishes)
	return a
}

// reachable lists the pools that a node may reach, in the order in which the allocator tries them.
func (r *run) reachable(node *clusterview.Node) []*clusterview.Pool {
	if len(r.Cluster.Shared) == 0 {
		return node.Pools
	}
	pools := slices.Concat(node.Pools, r.Cluster.Shared)
	slices.SortStableFunc(pools, func(a, b *clusterview.Pool) int {
		return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Name, b.Name))
	})
	return pools
}

// onNode explains claims on a node.
func (r *run) onNode(ctx context.Context, a *asked, node *clusterview.Node) *outcome {
	pools := r.reachable(node)
	if len(pools) == 0 {
		return &outcome{cause: NoDevices}
	}
	limited, cancel := r.limit(ctx)
	defer cancel()
	if a.one != nil {
		return r.byPools(limited, a.one, a.reads, node, pools)
	}
	key := r.nodeKey(a, node)
	known := r.nodes[a]
	if known == nil {
		known = map[string]*outcome{}
		r.nodes[a] = known
	}
	if known[key] == nil {
		known[key] = r.together(limited, a, node, pools)
	}
	return known[key]
}

// limit is the time for the search on one node.
func (r *run) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return limitedBy(ctx, r.options.PerNode)
}

func limitedBy(ctx context.Context, limit func(context.Context) (context.Context, context.CancelFunc)) (context.Context, context.CancelFunc) {
	if limit == nil {
		return ctx, func() {}
	}
	return limit(ctx)
}

// nodeKey is equal for nodes with the same outcome.
func (r *run) nodeKey(a *asked, node *clusterview.Node) string {
	if len(r.Cluster.Shared) > 0 || slices.ContainsFunc(node.Pools, r.holdsOwn) {
		return "\x00" + node.Name
	}
	return node.Key(a.reads)
}

// key is equal for pools with the same outcome.
func (r *run) key(p *clusterview.Pool, reads clusterview.Reads, node *clusterview.Node) string {
	key := p.Key(reads)
	if p.Node == nil {
		key += "\x00" + node.Name
	}
	if r.holdsOwn(p) {
		key += "\x00" + p.Name
	}
	return key
}

// holdsOwn reports whether the pod itself has devices of a pool.
func (r *run) holdsOwn(p *clusterview.Pool) bool {
	return len(r.own) > 0 && slices.ContainsFunc(p.Uses, func(u clusterview.Use) bool { return r.own[u.Claim] })
}

// byPools asks pool by pool, and equal pools once.
func (r *run) byPools(ctx context.Context, w *wish, reads clusterview.Reads, node *clusterview.Node, pools []*clusterview.Pool) *outcome {
	known := r.pools[w]
	if known == nil {
		known = map[string]*outcome{}
		r.pools[w] = known
	}
	merged := &outcome{cause: NoDevices}
	for _, p := range pools {
		key := r.key(p, reads, node)
		o := known[key]
		if o == nil {
			o = r.ask(ctx, w, reads, node, p)
			if ctx.Err() != nil {
				return &outcome{cause: SearchTooLong}
			}
			known[key] = o
		}
		if o.fatal != nil || o.cause == Fits {
			return o
		}
		merged = merged.merge(o)
	}
	return merged
}

// together explains claims for several devices on a node.
func (r *run) together(ctx context.Context, a *asked, node *clusterview.Node, pools []*clusterview.Pool) *outcome {
	c := r.countAll(ctx, a, node, pools)
	if c.first != nil && !c.failing {
		return c.first
	}
	q := Question{Node: node, Pools: pools, Claims: a.claims}
	if c.enough || c.failing {
		fits, err := r.fits(ctx, q)
		switch {
		case errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
			return &outcome{cause: SearchTooLong}
		case err != nil:
			return &outcome{cause: causeOf(err), fatal: err}
		case fits:
			return &outcome{cause: Fits}
		}
	}
	if c.first != nil {
		return c.first
	}
	o := r.ways(ctx, a, q, pools)
	if len(a.wishes) == 1 && len(a.wishes[0]) > 1 && o.fatal == nil {
		o = r.alternatives(ctx, a, node, pools, o)
	}
	if ctx.Err() != nil {
		return &outcome{cause: SearchTooLong}
	}
	return o
}

// ways finds out which change of the node would make room for claims that do not fit.
func (r *run) ways(ctx context.Context, a *asked, q Question, pools []*clusterview.Pool) *outcome {
	others := func(c *clusterview.Claim) bool { return !r.own[c] }
	q.Released = others
	released, err := r.fits(ctx, q)
	if err != nil {
		return &outcome{cause: causeOf(err), fatal: err}
	}
	if !released {
		q.IgnoreTaints = true
		if possible, _ := r.fits(ctx, q); !possible {
			return r.never(ctx, a, q)
		}
	}
	o := &outcome{cause: InUse, inUse: released, held: heldDevices}
	q.Released, q.IgnoreTaints = nil, true
	tainted, _ := r.fits(ctx, q)
	if tainted || !released {
		r.addNodeTaints(ctx, o, a, q.Node, pools)
	}
	switch {
	case !released && tainted:
		o.cause = Taint
	case !released:
		o.cause, o.detail = Taint, taintDetail(o.taints)+"; and in use"
	}
	return o
}

// never explains claims that do not fit on a node even if all its devices were free.
func (r *run) never(ctx context.Context, a *asked, q Question) *outcome {
	for _, alternatives := range a.wishes {
		if len(alternatives) > 1 || alternatives[0].all() {
			continue
		}
		alone := q
		alone.Claims = []*resourceapi.ResourceClaim{alternatives[0].alone()}
		if fits, err := r.fits(ctx, alone); err == nil && !fits {
			return &outcome{cause: Count, detail: fmt.Sprintf("%s: the devices of the node are fewer than %d together",
				r.label(a, alternatives[0]), alternatives[0].request.Count)}
		}
	}
	free := q
	free.Claims = nil
	constrained := false
	for _, claim := range a.claims {
		claim = claim.DeepCopy()
		constrained = constrained || len(claim.Spec.Devices.Constraints) > 0
		claim.Spec.Devices.Constraints = nil
		free.Claims = append(free.Claims, claim)
	}
	if constrained {
		if fits, err := r.fits(ctx, free); err == nil && fits {
			return &outcome{cause: Constraint, detail: "no devices of the node satisfy " + constraints(a.claims)}
		}
	}
	return &outcome{cause: Requests, detail: "each request fits by itself, not all together"}
}

// constraints names the constraints of claims.
func constraints(claims []*resourceapi.ResourceClaim) string {
	var all []string
	for _, claim := range claims {
		for _, c := range claim.Spec.Devices.Constraints {
			switch {
			case c.MatchAttribute != nil:
				all = append(all, "matchAttribute "+string(*c.MatchAttribute))
			case c.DistinctAttribute != nil:
				all = append(all, "distinctAttribute "+string(*c.DistinctAttribute))
			}
		}
	}
	return strings.Join(all, " and ")
}

// label names a request: with its claim if there are several, or the container's resource for which it is made.
func (r *run) label(a *asked, w *wish) string {
	switch name := r.labels[w.name]; {
	case name != "" && isMade(w.claim):
		return name
	case len(a.claims) > 1:
		return w.claim.Name + "/" + w.name
	default:
		return w.name
	}
}

// addNodeTaints adds the taints of the devices that requests match.
func (r *run) addNodeTaints(ctx context.Context, o *outcome, a *asked, node *clusterview.Node, pools []*clusterview.Pool) {
	merged := &outcome{}
	for _, alternatives := range a.wishes {
		for _, w := range alternatives {
			for _, p := range pools {
				if in := r.known(ctx, w, a.reads, node, p); in.outcome == nil {
					one := &outcome{}
					r.addTaints(one, w, in.pooled, in.able)
					merged = merged.merge(one)
				}
			}
		}
	}
	o.taints, o.tolerable = merged.taints, merged.tolerable
}

// alternatives explains each subrequest of the only request by itself. Together is the outcome of the claim, which does not fit: it is also
// the outcome of a subrequest that would fit without the claim's constraints.
func (r *run) alternatives(ctx context.Context, a *asked, node *clusterview.Node, pools []*clusterview.Pool, together *outcome) *outcome {
	merged := &outcome{cause: ClassMissing}
	var details []string
	for _, w := range a.wishes[0] {
		o := r.alternative(ctx, a, w, node, pools)
		if o.cause == Fits {
			o = together
		}
		merged = merged.merge(o)
		text := strings.TrimPrefix(w.name, a.claims[0].Spec.Devices.Requests[0].Name+"/") + ": " + string(o.cause)
		if detail := r.detailOf(o, w); detail != "" {
			text += ", " + detail
		}
		details = append(details, text)
	}
	merged.detail = strings.Join(details, "; ")
	return merged
}

func (r *run) alternative(ctx context.Context, a *asked, w *wish, node *clusterview.Node, pools []*clusterview.Pool) *outcome {
	claims := []*resourceapi.ResourceClaim{w.alone()}
	if single(claims, [][]*wish{{w}}) != nil {
		return r.byPools(ctx, w, a.reads, node, pools)
	}
	alone := &asked{claims: claims, wishes: [][]*wish{{w}}, reads: a.reads}
	return r.together(ctx, alone, node, pools)
}
