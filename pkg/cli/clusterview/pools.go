package clusterview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// poolID identifies a pool.
type poolID struct{ driver, name string }

// addPools adds the nodes with their pools, and the shared pools.
func (s *Store) addPools(c *Cluster) {
	nodes := map[string]*Node{}
	for name, object := range s.nodes {
		nodes[name] = &Node{Name: name, Object: object}
	}
	pools := s.pools()
	for _, p := range pools {
		name := p.nodeName()
		if name == "" {
			c.Shared = append(c.Shared, p)
			continue
		}
		if nodes[name] == nil {
			nodes[name] = &Node{Name: name}
		}
		p.Node = nodes[name]
		p.Node.Pools = append(p.Node.Pools, p)
	}
	for _, n := range nodes {
		c.Nodes = append(c.Nodes, n)
		sortPools(n.Pools)
	}
	sortPools(c.Shared)
	slices.SortFunc(c.Nodes, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	addUses(c.Claims, pools)
}

// pools returns the newest generation of each pool, with the taints of the rules.
func (s *Store) pools() map[poolID]*Pool {
	pools := map[poolID]*Pool{}
	for _, piece := range s.pieces {
		names := piece.names()
		id, generation := poolID{piece.shape.spec.Driver, names[piece.shape.pool]}, number(names[piece.shape.generation])
		p := pools[id]
		if p == nil || p.Generation < generation {
			p = &Pool{Driver: id.driver, Name: id.name, Generation: generation}
			pools[id] = p
		}
		if p.Generation == generation {
			p.pieces = append(p.pieces, piece)
		}
	}
	rules := slices.SortedFunc(maps.Values(s.rules), func(a, b *resourceapi.DeviceTaintRule) int { return cmp.Compare(a.Name, b.Name) })
	known := s.checked
	s.checked = make(map[string]bool, len(known))
	for _, p := range pools {
		slices.SortFunc(p.pieces, func(a, b *piece) int { return cmp.Compare(a.name, b.name) })
		for _, rule := range rules {
			only := rule.Spec.DeviceSelector
			if only != nil && (only.Driver == nil || *only.Driver == p.Driver) && (only.Pool == nil || *only.Pool == p.Name) {
				p.rules = append(p.rules, rule)
			}
		}
		s.check(p, known)
	}
	return pools
}

// nodeName returns the node that alone reaches the pool; "" if there are several.
func (p *Pool) nodeName() string {
	var name string
	for _, piece := range p.pieces {
		if piece.shape.node < 0 {
			return ""
		}
		of := piece.names()[piece.shape.node]
		if name != "" && name != of {
			return ""
		}
		name = of
	}
	return name
}

// sortPools puts pools in the order in which the allocator tries them: pools with binding conditions are the last.
func sortPools(pools []*Pool) {
	slices.SortFunc(pools, func(a, b *Pool) int {
		return cmp.Or(cmp.Compare(a.bound(), b.bound()), cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Name, b.Name))
	})
}

// bound is 1 for a complete pool with devices that have binding conditions.
func (p *Pool) bound() int {
	if p.State != PoolComplete {
		return 0
	}
	if slices.ContainsFunc(p.pieces, func(piece *piece) bool { return piece.shape.bound }) {
		return 1
	}
	return 0
}

// addUses adds the allocated devices to their pools.
func addUses(claims []*Claim, pools map[poolID]*Pool) {
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		results := claim.Status.Allocation.Devices.Results
		for i := range results {
			if p := pools[poolID{results[i].Driver, results[i].Pool}]; p != nil && counted(&results[i]) {
				p.Uses = append(p.Uses, Use{claim, &results[i]})
			}
		}
	}
	for _, p := range pools {
		slices.SortStableFunc(p.Uses, func(a, b Use) int { return cmp.Compare(a.Result.Device, b.Result.Device) })
	}
}

// check sets the state of a pool, as the allocator decides. Pools with equal names of counter sets and devices are checked
// once, in the pictures before too: known are the keys of their valid pools.
func (s *Store) check(p *Pool, known map[string]bool) {
	p.State = PoolComplete
	if want, got := p.pieces[0].shape.spec.Pool.ResourceSliceCount, int64(len(p.pieces)); got != want {
		p.State = PoolIncomplete
		p.Problem = fmt.Sprintf("pool %s has %d of %d ResourceSlices of generation %d", p.Name, got, want, p.Generation)
		return
	}
	key := p.Key(Reads{})
	if s.checked[key] || known[key] {
		s.checked[key] = true
		return
	}
	if p.Problem = problem(p.Slices()); p.Problem != "" {
		p.State, p.Problem = PoolInvalid, fmt.Sprintf("pool %s %s", p.Name, p.Problem)
		return
	}
	s.checked[key] = true
}

// problem explains why the ResourceSlices are no valid pool; "" if they are.
func problem(published []*resourceapi.ResourceSlice) string {
	names := map[string]bool{}
	counters := map[string]map[string]resourceapi.Counter{}
	for _, slice := range published {
		for _, set := range slice.Spec.SharedCounters {
			if _, found := counters[set.Name]; found {
				return "has several counter sets " + set.Name
			}
			counters[set.Name] = set.Counters
		}
		for i := range slice.Spec.Devices {
			if name := slice.Spec.Devices[i].Name; names[name] {
				return "has several devices " + name
			}
			names[slice.Spec.Devices[i].Name] = true
		}
	}
	for _, slice := range published {
		for i := range slice.Spec.Devices {
			if unknown := unknownCounter(&slice.Spec.Devices[i], counters); unknown != "" {
				return fmt.Sprintf("does not have %s, which device %s consumes", unknown, slice.Spec.Devices[i].Name)
			}
		}
	}
	return ""
}

// unknownCounter names a counter that a device consumes and the pool does not have; "" if there is none.
func unknownCounter(d *resourceapi.Device, sets map[string]map[string]resourceapi.Counter) string {
	for _, consumed := range d.ConsumesCounters {
		set, found := sets[consumed.CounterSet]
		if !found {
			return "counter set " + consumed.CounterSet
		}
		for name := range consumed.Counters {
			if _, found := set[name]; !found {
				return fmt.Sprintf("counter %s of set %s", name, consumed.CounterSet)
			}
		}
	}
	return ""
}
