package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// change adds the changes that help, the smallest first.
func (r *run) change(ctx context.Context, e *Explanation, places []place) error {
	if text := r.move(e); text != "" {
		e.Changes = append(e.Changes, Change{text})
	}
	for _, find := range []func(context.Context, []place) string{r.lessMemory, r.smallerCount, r.smallerProfile, r.toleration} {
		if text := find(ctx, places); text != "" {
			e.Changes = append(e.Changes, Change{text})
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// move is the release of the nearest device.
func (r *run) move(e *Explanation) string {
	if e.Nearest == nil || slices.ContainsFunc(e.Nearest.Holders, func(h Holder) bool { return h.Hidden }) {
		return ""
	}
	var pods, claims []string
	for _, h := range e.Nearest.Holders {
		for _, pod := range h.Pods {
			if name := h.Namespace + "/" + pod; !slices.Contains(pods, name) {
				pods = append(pods, name)
			}
		}
		if len(h.Pods) == 0 {
			claims = append(claims, h.Namespace+"/"+h.Claim)
		}
	}
	var texts []string
	ending := !slices.ContainsFunc(e.Nearest.Holders, func(h Holder) bool { return !h.Terminating })
	switch {
	case len(pods) > 0 && ending:
		return "wait for the end of " + list(pods, shown)
	case len(pods) > 0:
		texts = append(texts, "move "+list(pods, shown))
	}
	if len(claims) > 0 {
		texts = append(texts, "delete unused claim "+list(claims, shown))
	}
	text := strings.Join(texts, ", ")
	if len(pods) > 0 && e.Nearest.Size > 0 && r.pod != nil && r.pod.UID != "" {
		text += fmt.Sprintf(": kubectl prism defragment %s -n %s", e.Name, e.Namespace)
	}
	return text
}

// room counts the devices that are free for a request for one device, and has the allocator confirm one of them.
func (r *run) room(ctx context.Context, w *wish, places []place) (free int, confirmed bool) {
	reads := r.reads(r.matcher, []*resourceapi.ResourceClaim{w.alone()})
	counts := map[string]int{}
	counted := map[*clusterview.Pool]bool{} // pools that several nodes reach
	for i := range places {
		p := &places[i]
		if p.refusal != nil {
			continue
		}
		for _, pool := range r.reachable(p.node) {
			if counted[pool] {
				continue
			}
			key := r.key(pool, reads, p.node)
			n, known := counts[key]
			if !known {
				n = r.freeIn(ctx, w, p.node, pool) // equal pools have equally many
				counts[key] = n
			}
			if pool.Node == nil && n > 0 {
				counted[pool] = true
			}
			if n > 0 && !confirmed {
				fits, err := r.fits(ctx, Question{Node: p.node, Pools: []*clusterview.Pool{pool}, Claims: []*resourceapi.ResourceClaim{w.alone()}})
				if err != nil {
					return 0, false
				}
				confirmed = fits
			}
			free += n
		}
	}
	return free, confirmed
}

// freeMost bounds the count of shares in a pool.
const freeMost = 1000

func (r *run) freeIn(ctx context.Context, w *wish, node *clusterview.Node, pool *clusterview.Pool) int {
	in, o := r.read(ctx, w, node, pool)
	if o != nil {
		return 0
	}
	return in.ledger.free(r.untainted(w, in), r.demand(w), freeMost)
}

// changed returns a wish with another request, of a claim that has only it.
func (r *run) changed(w *wish, edit func(*resourceapi.ExactDeviceRequest)) *wish {
	request := w.request.DeepCopy()
	edit(request)
	return r.wish(r.matcher, w.claim, w.name, request)
}

// choices are the requests for one device of which any would do.
func choices(places []place) []*wish {
	for i := range places {
		a := places[i].asked
		switch {
		case places[i].refusal != nil:
		case a.one != nil:
			return []*wish{a.one}
		case len(a.wishes) == 1 && len(a.wishes[0]) > 1 && len(a.claims[0].Spec.Devices.Constraints) == 0:
			return a.wishes[0]
		}
	}
	return nil
}

// countsTried is the number of smaller counts that are tried.
const countsTried = 8

// smallerCount finds the largest smaller number of devices that fits.
func (r *run) smallerCount(ctx context.Context, places []place) string {
	tried := 0
	for i := range places {
		if places[i].refusal != nil {
			continue
		}
		for at, alternatives := range places[i].asked.wishes {
			if len(alternatives) > 1 || alternatives[0].request.Count < 2 {
				continue
			}
			for n := min(alternatives[0].request.Count-1, r.mostFree(ctx, alternatives[0], places)); n > 0; n-- {
				if tried++; tried > countsTried {
					return ""
				}
				if node := r.fitsWith(ctx, places, func(claims []*resourceapi.ResourceClaim) bool { return setCount(claims, at, n) }); node != "" {
					return fmt.Sprintf("request %d instead of %d devices for %s", n, alternatives[0].request.Count, r.label(places[i].asked, alternatives[0]))
				}
				if ctx.Err() != nil {
					return ""
				}
			}
		}
		return ""
	}
	return ""
}

// mostFree is at least the number of devices that a request can get on the best node.
func (r *run) mostFree(ctx context.Context, w *wish, places []place) int64 {
	most := 0
	for i := range places {
		if places[i].refusal != nil {
			continue
		}
		count := 0
		for _, pool := range r.reachable(places[i].node) {
			if in := r.known(ctx, w, places[i].asked.reads, places[i].node, pool); in.outcome == nil {
				count += r.bound(w, in.pooled)
			}
		}
		most = max(most, count)
	}
	return int64(most)
}

// setCount sets the count of one request; at is its position among the requests of all claims.
func setCount(claims []*resourceapi.ResourceClaim, at int, count int64) bool {
	for _, claim := range claims {
		if at < len(claim.Spec.Devices.Requests) {
			claim.Spec.Devices.Requests[at].Exactly.Count = count
			return true
		}
		at -= len(claim.Spec.Devices.Requests)
	}
	return false
}

// fitsWith returns the first node on which changed claims fit; "" for none, and if the search takes too long.
func (r *run) fitsWith(ctx context.Context, places []place, edit func([]*resourceapi.ResourceClaim) bool) string {
	variants := map[*asked]*asked{}
	for i := range places {
		p := &places[i]
		if p.refusal != nil || len(p.asked.claims) == 0 {
			continue
		}
		if _, known := variants[p.asked]; !known {
			variants[p.asked] = r.edited(p.asked, edit)
		}
		if variants[p.asked] == nil {
			continue
		}
		fits, err := r.fitsOn(ctx, variants[p.asked], p.node)
		if err != nil {
			return ""
		}
		if fits {
			return p.node.Name
		}
	}
	return ""
}

// fitsOn reports whether claims fit on a node. Equal nodes are asked once.
func (r *run) fitsOn(ctx context.Context, a *asked, node *clusterview.Node) (bool, error) {
	if a.one != nil {
		o := r.onNode(ctx, a, node)
		return o.cause == Fits, o.fatal
	}
	known := r.nodes[a]
	if known == nil {
		known = map[string]*outcome{}
		r.nodes[a] = known
	}
	key := r.nodeKey(a, node)
	if o := known[key]; o != nil {
		return o.cause == Fits, nil
	}
	limited, cancel := r.limit(ctx)
	defer cancel()
	pools := r.reachable(node)
	c := r.countAll(limited, a, node, pools)
	fits := false
	if c.enough && c.first == nil || c.failing {
		var err error
		if fits, err = r.fits(limited, Question{Node: node, Pools: pools, Claims: a.claims}); err != nil {
			return false, err
		}
	}
	known[key] = &outcome{cause: InUse}
	if fits {
		known[key].cause = Fits
	}
	return fits, nil
}

func (r *run) edited(a *asked, edit func([]*resourceapi.ResourceClaim) bool) *asked {
	var claims []*resourceapi.ResourceClaim
	for _, claim := range a.claims {
		claims = append(claims, claim.DeepCopy())
	}
	if !edit(claims) {
		return nil
	}
	return r.asked(claims)
}

// tolerationNodes is the number of nodes on which the toleration of a taint is tried: on the first, devices may have further taints.
const tolerationNodes = 8

// toleration finds a taint that is not Prism's own and whose toleration helps.
func (r *run) toleration(ctx context.Context, places []place) string {
	tried := map[string]int{}
	for i := range places {
		if places[i].refusal != nil {
			continue
		}
		for _, taint := range places[i].outcome.tolerable {
			text := taint.Key + ":" + string(taint.Effect)
			if taint.Value != "" {
				text = taint.Key + "=" + taint.Value + ":" + string(taint.Effect)
			}
			if tried[text] == tolerationNodes {
				continue
			}
			tried[text]++
			add := func(claims []*resourceapi.ResourceClaim) bool { return tolerate(claims, taint) }
			if node := r.fitsWith(ctx, places[i:i+1], add); node != "" {
				return "tolerate the taint " + text + ": fits on node " + node
			}
		}
	}
	return ""
}

// tolerate adds a toleration to all requests.
func tolerate(claims []*resourceapi.ResourceClaim, taint resourceapi.DeviceTaint) bool {
	t := resourceapi.DeviceToleration{Key: taint.Key, Operator: resourceapi.DeviceTolerationOpEqual, Value: taint.Value, Effect: taint.Effect}
	for _, claim := range claims {
		for i := range claim.Spec.Devices.Requests {
			request := &claim.Spec.Devices.Requests[i]
			if request.Exactly != nil {
				request.Exactly.Tolerations = append(request.Exactly.Tolerations, t)
			}
			for j := range request.FirstAvailable {
				request.FirstAvailable[j].Tolerations = append(request.FirstAvailable[j].Tolerations, t)
			}
		}
	}
	return true
}
