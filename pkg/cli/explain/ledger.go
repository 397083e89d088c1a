package explain

import (
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// ledger is the devices, counters and uses of a pool, as the allocator counts them. It predicts which claims are in the way of a device;
// the allocator decides.
type ledger struct {
	devices []entry
	// total are the pool's counters.
	total []int64
	// claims use devices of the pool; uses name them by index.
	claims []*clusterview.Claim
	// used are the indices of the devices with uses.
	used []int
}

// entry is a device of a ledger.
type entry struct {
	device
	// reachable: the node reaches the device, and the allocator considers it.
	reachable bool
	// sharing: several claims can use it.
	sharing bool
	needs   []need
	uses    []use
}

// need is an amount of a counter.
type need struct {
	counter int
	amount  int64
}

// use is the use of a device by a claim.
type use struct {
	claim int
	// share is set for a share of the device, with the amounts of its capacities.
	share    bool
	consumed map[resourceapi.QualifiedName]int64
}

// counterName names a counter of a pool.
type counterName struct{ set, name string }

// newLedger reads a pool that a node reaches.
func newLedger(p *clusterview.Pool, node *clusterview.Node, features structured.Features) *ledger {
	l := &ledger{}
	counters, places := map[counterName]int{}, map[string]int{}
	for _, slice := range p.Slices() {
		for i := range slice.Spec.SharedCounters {
			set := &slice.Spec.SharedCounters[i]
			for _, name := range slices.Sorted(maps.Keys(set.Counters)) {
				counters[counterName{set.Name, name}] = len(l.total)
				value := set.Counters[name].Value
				l.total = append(l.total, milli(&value))
			}
		}
	}
	for _, slice := range p.Slices() {
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			places[d.Name] = len(l.devices)
			l.devices = append(l.devices, newEntry(slice, d, node, counters, features))
		}
	}
	l.addUses(p, places, features)
	return l
}

// like returns the ledger of a pool with an equal key: only its claims are others. The devices keep the names of the first pool.
func (l *ledger) like(p *clusterview.Pool, features structured.Features) *ledger {
	other := &ledger{devices: slices.Clone(l.devices), total: l.total}
	for i := range other.devices {
		other.devices[i].uses = nil
	}
	places := map[string]int{}
	for i, name := range p.DeviceNames() {
		places[name] = i
	}
	other.addUses(p, places, features)
	return other
}

// addUses adds the uses of a pool; places are the positions of its devices by name.
func (l *ledger) addUses(p *clusterview.Pool, places map[string]int, features structured.Features) {
	claims := map[*clusterview.Claim]int{}
	for i := range p.Uses {
		place, found := places[p.Uses[i].Result.Device]
		if !found {
			continue
		}
		claim := p.Uses[i].Claim
		if _, known := claims[claim]; !known {
			claims[claim] = len(l.claims)
			l.claims = append(l.claims, claim)
		}
		if len(l.devices[place].uses) == 0 {
			l.used = append(l.used, place)
		}
		l.devices[place].uses = append(l.devices[place].uses, newUse(claims[claim], p.Uses[i].Result, features))
	}
}

// drop removes the uses by claims.
func (l *ledger) drop(claims []*clusterview.Claim) {
	var used []int
	for _, place := range l.used {
		e := &l.devices[place]
		e.uses = slices.DeleteFunc(slices.Clone(e.uses), func(u use) bool { return slices.Contains(claims, l.claims[u.claim]) })
		if len(e.uses) > 0 {
			used = append(used, place)
		}
	}
	l.used = used
}

func newEntry(
	slice *resourceapi.ResourceSlice, d *resourceapi.Device, node *clusterview.Node, counters map[counterName]int,
	features structured.Features,
) entry {
	e := entry{
		device: device{d, slice.Spec.Driver}, sharing: features.ConsumableCapacity && shared(d),
		reachable: reaches(slice, d, node) && (features.DeviceBindingAndStatus || len(d.BindingConditions) == 0) &&
			(features.PartitionableDevices || len(d.ConsumesCounters) == 0),
	}
	if !features.PartitionableDevices {
		return e
	}
	for _, set := range d.ConsumesCounters {
		for name, c := range set.Counters {
			if place, found := counters[counterName{set.CounterSet, name}]; found {
				e.needs = append(e.needs, need{place, milli(&c.Value)})
			}
		}
	}
	return e
}

func newUse(claim int, r *resourceapi.DeviceRequestAllocationResult, features structured.Features) use {
	u := use{claim: claim, share: features.ConsumableCapacity && r.ShareID != nil}
	if u.share {
		u.consumed = make(map[resourceapi.QualifiedName]int64, len(r.ConsumedCapacity))
		for name, amount := range r.ConsumedCapacity {
			u.consumed[name] = milli(&amount)
		}
	}
	return u
}

// reaches reports whether containers on a node can use a device.
func reaches(slice *resourceapi.ResourceSlice, d *resourceapi.Device, node *clusterview.Node) bool {
	name, selector, all := slice.Spec.NodeName, slice.Spec.NodeSelector, slice.Spec.AllNodes
	if slice.Spec.PerDeviceNodeSelection != nil && *slice.Spec.PerDeviceNodeSelection {
		name, selector, all = d.NodeName, d.NodeSelector, d.AllNodes
	}
	switch {
	case name != nil && *name != "":
		return *name == node.Name
	case all != nil && *all:
		return true
	case selector != nil:
		parsed, err := nodeaffinity.NewNodeSelector(selector)
		return err == nil && parsed.Match(object(node))
	default:
		return false
	}
}

// devicesOf lists the devices without the other facts.
func (l *ledger) devicesOf(places []int) []device {
	all := make([]device, len(places))
	for i, place := range places {
		all[i] = l.devices[place].device
	}
	return all
}

// reachable lists the devices that the allocator considers.
func (l *ledger) reachable() (places []int) {
	for i := range l.devices {
		if l.devices[i].reachable {
			places = append(places, i)
		}
	}
	return places
}

// usable reports whether a device has room for a request if claims were released; released has an element for each of the ledger's claims.
func (l *ledger) usable(place int, m demand, released []bool) bool {
	e := &l.devices[place]
	busy, consumed := false, map[resourceapi.QualifiedName]int64(nil)
	for _, u := range e.uses {
		switch {
		case released[u.claim]:
		case !u.share || !e.sharing:
			return false
		default:
			busy = true
			if consumed == nil {
				consumed = map[resourceapi.QualifiedName]int64{}
			}
			for name, amount := range u.consumed {
				consumed[name] += amount
			}
		}
	}
	if e.sharing {
		for name := range e.Capacity {
			c := e.Capacity[name]
			if amount, valid := m.amount(name, &c); !valid || consumed[name]+amount > milli(&c.Value) {
				return false
			}
		}
		if busy {
			return true
		}
	}
	return len(e.needs) == 0 || l.countersSuffice(e.needs, released)
}

// countersSuffice reports whether the counters that no device in use consumes suffice.
func (l *ledger) countersSuffice(needs []need, released []bool) bool {
	left := slices.Clone(l.total)
	for _, place := range l.used {
		e := &l.devices[place]
		if slices.ContainsFunc(e.uses, func(u use) bool { return !released[u.claim] }) {
			for _, n := range e.needs {
				left[n.counter] -= n.amount
			}
		}
	}
	for _, n := range needs {
		left[n.counter] -= n.amount
	}
	// The allocator refuses a device also if a counter that it does not consume is overdrawn.
	return !slices.ContainsFunc(left, func(amount int64) bool { return amount < 0 })
}

// free counts how many claims with this request get one of the devices, one after the other as the allocator chooses.
func (l *ledger) free(places []int, m demand, most int) int {
	trial := &ledger{devices: slices.Clone(l.devices), total: l.total, claims: l.claims, used: slices.Clone(l.used)}
	count := 0
	for _, place := range places {
		for count < most && trial.usable(place, m, make([]bool, len(trial.claims))) {
			trial.take(place, m)
			count++
		}
	}
	return count
}

// take adds a use by a new claim.
func (l *ledger) take(place int, m demand) {
	e := &l.devices[place]
	u := use{claim: len(l.claims), share: e.sharing}
	if e.sharing {
		u.consumed = map[resourceapi.QualifiedName]int64{}
		for name := range e.Capacity {
			c := e.Capacity[name]
			u.consumed[name], _ = m.amount(name, &c)
		}
	}
	l.claims = append(slices.Clip(l.claims), nil)
	if len(e.uses) == 0 {
		l.used = append(l.used, place)
	}
	e.uses = append(slices.Clip(e.uses), u)
}

// memorySlices returns the memory slices of a MIG device of Prism; size is 0 for other devices.
func memorySlices(d *resourceapi.Device) (start, size int) {
	for _, set := range d.ConsumesCounters {
		for name := range set.Counters {
			if n, found := strings.CutPrefix(name, "memory-slice-"); found {
				at := 0
				for _, digit := range n {
					at = at*10 + int(digit-'0')
				}
				if size == 0 || at < start {
					start = at
				}
				size++
			}
		}
	}
	return start, size
}
