package explain

import (
	"context"
	"errors"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// run is one explanation in the making.
type run struct {
	*Solver
	matcher *matcher
	options Options
	pod     *clusterview.Pod
	// own are the claims of the pod, which are never released for it.
	own map[*clusterview.Claim]bool
	// allocated are the claims of the pod that have devices; labels name the requests for extended resources.
	allocated []*clusterview.Claim
	labels    map[string]string
	// pools are the outcomes for requests for one device, by the keys of pools; nodes the outcomes for several devices, by the keys of nodes.
	pools map[*wish]map[string]*outcome
	nodes map[*asked]map[string]*outcome
	// readings are pools that were read for a request, by their keys.
	readings map[*wish]map[string]*reading
}

// reading is the result of reading a pool: the outcome is nil if the pool has devices that the request can get.
type reading struct {
	*pooled
	outcome *outcome
}

// known reads a pool, and equal pools once. The claims and the names of devices may be from an equal pool.
func (r *run) known(ctx context.Context, w *wish, reads clusterview.Reads, node *clusterview.Node, p *clusterview.Pool) *reading {
	byKey := r.readings[w]
	if byKey == nil {
		byKey = map[string]*reading{}
		r.readings[w] = byKey
	}
	key := r.key(p, reads, node)
	if byKey[key] == nil {
		in, o := r.read(ctx, w, node, p)
		if ctx.Err() != nil {
			return &reading{in, o}
		}
		byKey[key] = &reading{in, o}
	}
	return byKey[key]
}

// of returns a reading with the claims of this pool.
func (in *reading) of(p *clusterview.Pool, node *clusterview.Node, features structured.Features) *pooled {
	if in.pool == p {
		return in.pooled
	}
	return &pooled{pool: p, node: node, ledger: in.ledger.like(p, features), able: in.able}
}

// pooled is a pool as a node reaches it, with the devices that a request can get from it.
type pooled struct {
	pool   *clusterview.Pool
	node   *clusterview.Node
	ledger *ledger
	// able are the devices that expressions match and that have the capacity.
	able []int
	// err is the first error of an expression.
	err error
}

// read reads a pool for a request. The outcome is nil if the pool has devices that the request can get.
func (r *run) read(ctx context.Context, w *wish, node *clusterview.Node, p *clusterview.Pool) (*pooled, *outcome) {
	if problem := r.unusable(p); problem != "" {
		return nil, &outcome{cause: PoolIncomplete, detail: problem}
	}
	in := &pooled{pool: p, node: node, ledger: newLedger(p, node, r.Features)}
	places := in.ledger.reachable()
	if len(places) == 0 {
		return in, &outcome{cause: NoDevices}
	}
	devices := in.ledger.devicesOf(places)
	matching, err := w.selected(ctx, r.matcher, devices)
	in.err = err
	if len(matching) == 0 && err == nil {
		return in, r.excluded(ctx, w, devices)
	}
	m := r.demand(w)
	var lacks lack
	for _, i := range matching {
		d := devices[i].Device
		name, exists, isLacking := m.lacking(d)
		if !isLacking {
			in.able = append(in.able, places[i])
			continue
		}
		lacks = lacks.merge(lackOf(name, exists, d))
	}
	if len(in.able) == 0 && err == nil {
		return in, &outcome{cause: Capacity, lacks: lacks}
	}
	return in, nil
}

// excluded explains that expressions exclude all devices.
func (r *run) excluded(ctx context.Context, w *wish, devices []device) *outcome {
	o := &outcome{cause: Selector, selector: r.matcher.excluded(ctx, w.expressions, devices)}
	p := o.selector.part
	if p != nil && !p.reads.all && len(p.reads.attributes)+len(p.reads.capacities) == 0 && strings.Contains(p.text, "device.driver") {
		return &outcome{cause: NoDevices}
	}
	return o
}

func (r *run) demand(w *wish) demand { return demandOf(w.request, r.Features) }

func lackOf(name resourceapi.QualifiedName, exists bool, d *resourceapi.Device) lack {
	l := lack{name: name, exists: exists}
	if exists {
		l.most = d.Capacity[name]
		return l
	}
	l.names = map[resourceapi.QualifiedName]bool{}
	for has := range d.Capacity {
		l.names[has] = true
	}
	return l
}

// unusable says why the scheduler uses no device of a pool; "" if it does.
func (r *run) unusable(p *clusterview.Pool) string {
	if p.State == clusterview.PoolIncomplete {
		return "not all ResourceSlices of the pool are published"
	}
	for _, slice := range p.Slices() {
		counters := len(slice.Spec.SharedCounters) > 0 || slice.Spec.PerDeviceNodeSelection != nil
		grouped := slices.ContainsFunc(slice.Spec.Devices, func(d resourceapi.Device) bool {
			return slices.ContainsFunc(d.ConsumesCounters, hasGroups)
		})
		switch {
		case counters && !r.Features.PartitionableDevices:
			return "the scheduler ignores pools with counters: its feature gate DRAPartitionableDevices is off"
		case grouped && !r.Features.CompatibilityGroups:
			return "the scheduler ignores devices with compatibility groups: its feature gate DRADeviceCompatibilityGroups is off"
		}
	}
	if p.State == clusterview.PoolInvalid && r.Features.PartitionableDevices {
		return p.Problem
	}
	return ""
}

func hasGroups(c resourceapi.DeviceCounterConsumption) bool { return len(c.CompatibilityGroups) > 0 }

// ask explains a pool for a request for one device.
func (r *run) ask(ctx context.Context, w *wish, reads clusterview.Reads, node *clusterview.Node, p *clusterview.Pool) *outcome {
	reading := r.known(ctx, w, reads, node, p)
	if reading.outcome != nil {
		return reading.outcome
	}
	in := reading.of(p, node, r.Features)
	question := Question{Node: node, Pools: []*clusterview.Pool{p}, Claims: []*resourceapi.ResourceClaim{w.alone()}}
	fits, err := r.fits(ctx, question)
	switch {
	case err != nil:
		return &outcome{cause: causeOf(err), fatal: err}
	case fits:
		return &outcome{cause: Fits}
	}
	if len(in.able) == 0 {
		return r.excluded(ctx, w, in.ledger.devicesOf(in.ledger.reachable()))
	}
	o := &outcome{cause: InUse, held: held(in)}
	free, held := r.divide(w, in)
	if claims, found := r.nearest(w, in, held, nil); found {
		question.Released = among(claims)
		o.inUse, _ = r.fits(ctx, question)
	}
	if len(free) > 0 {
		question.Released, question.IgnoreTaints = nil, true
		if tainted, _ := r.fits(ctx, question); tainted {
			r.addTaints(o, w, in, free)
		}
	}
	switch {
	case !o.inUse && len(o.taints) > 0:
		o.cause = Taint
	case !o.inUse:
		o.cause, o.detail = r.neither(w, in)
	}
	return o
}

// fits asks the allocator. The error stops the scheduler on all nodes.
func (r *run) fits(ctx context.Context, q Question) (bool, error) {
	found, err := r.Allocate(ctx, q)
	if errors.Is(err, structured.ErrFailedAllocationOnNode) {
		err = nil
	}
	return found != nil, err
}

// divide returns the devices that only taints withhold, and those without such taints that claims hold.
func (r *run) divide(w *wish, in *pooled) (free, held []int) {
	released := make([]bool, len(in.ledger.claims))
	m := r.demand(w)
	for _, place := range in.able {
		usable, tainted := in.ledger.usable(place, m, released), len(r.untolerated(in.ledger.devices[place].Device, w)) > 0
		switch {
		case usable && tainted:
			free = append(free, place)
		case !usable && !tainted:
			held = append(held, place)
		}
	}
	return free, held
}

func (r *run) addTaints(o *outcome, w *wish, in *pooled, places []int) {
	o.taints = map[string]bool{}
	for _, place := range places {
		d := in.ledger.devices[place].device
		for _, taint := range r.untolerated(d.Device, w) {
			o.taints[taintText(taint, d, in.node, r.options.Driver)] = true
			if !ownTaint(taint.Key, r.options.Driver) {
				o.tolerable = append(o.tolerable, taint)
			}
		}
	}
}

// neither explains devices that neither the release of claims nor a toleration alone makes free.
func (r *run) neither(w *wish, in *pooled) (Cause, string) {
	if r.holdsOwn(in.pool) {
		return InUse, "other claims of the pod hold the devices"
	}
	tainted := &outcome{}
	r.addTaints(tainted, w, in, in.able)
	if len(tainted.taints) > 0 {
		return Taint, taintDetail(tainted.taints) + "; and in use"
	}
	return InUse, held(in)
}

// among returns a function that reports whether a claim is one of these.
func among(claims []*clusterview.Claim) func(*clusterview.Claim) bool {
	return func(c *clusterview.Claim) bool { return slices.Contains(claims, c) }
}

// eachPlace is called for a device with the claims to release for it.
type eachPlace func(place int, claims []*clusterview.Claim, p price)

// nearest returns the claims whose release frees one of the places, the fewest pods first. Each may be nil.
func (r *run) nearest(w *wish, in *pooled, places []int, each eachPlace) ([]*clusterview.Claim, bool) {
	var best []*clusterview.Claim
	var bestPrice price
	found := false
	for _, place := range places {
		claims, ok := in.ledger.cheapest(place, r.demand(w), r.own)
		if !ok {
			continue
		}
		p := priceOf(claims)
		if each != nil {
			each(place, claims, p)
		}
		if !found || p.compare(bestPrice) < 0 {
			best, bestPrice, found = claims, p, true
		}
	}
	return best, found
}
