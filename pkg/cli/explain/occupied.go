package explain

import (
	"cmp"
	"iter"
	"slices"

	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// occupied is a pool, and the pods that could move.
type occupied struct {
	*ledger
	pool *clusterview.Pool
	// pods are the pods that can move and have devices of the pool.
	pods []*clusterview.Pod
}

// occupy reads a pool. canMove reports whether a pod can move.
func occupy(p *clusterview.Pool, features structured.Features, canMove func(*clusterview.Pod) bool) *occupied {
	o := &occupied{pool: p, ledger: newLedger(p, p.Node, features)}
	for _, claim := range o.claims {
		for _, pod := range claim.Pods {
			if !slices.Contains(o.pods, pod) && canMove(pod) {
				o.pods = append(o.pods, pod)
			}
		}
	}
	return o
}

// released has an element for each claim of the ledger: whether it is released when pods are evicted.
func (o *occupied) released(pods []*clusterview.Pod) []bool {
	gone := goneWith(pods)
	all := make([]bool, len(o.claims))
	for i, claim := range o.claims {
		all[i] = gone(claim)
	}
	return all
}

// goneWith reports which claims are released when pods are evicted, and others have ended.
func goneWith(pods []*clusterview.Pod) func(*clusterview.Claim) bool {
	return func(c *clusterview.Claim) bool {
		return releasesSoon(c) || slices.ContainsFunc(pods, func(p *clusterview.Pod) bool { return slices.Contains(p.Claims, c) })
	}
}

// fewest returns the smallest sets of pods without which a device has room for a request: all sets of the smallest size. There is none if
// all pods together are not enough. A device with many shares has more sets than can be tried: then it returns one set, each of whose pods is
// necessary.
func (o *occupied) fewest(device int, m demand) (sets [][]*clusterview.Pod) {
	if !o.usable(device, m, o.released(o.pods)) {
		return nil
	}
	var forced, others []*clusterview.Pod
	for i, pod := range o.pods {
		if o.usable(device, m, o.released(slices.Delete(slices.Clone(o.pods), i, i+1))) {
			others = append(others, pod)
		} else {
			forced = append(forced, pod)
		}
	}
	tried := 0
	for size := 0; size <= len(others) && len(sets) == 0; size++ {
		for more := range choose(others, size) {
			if tried++; tried > moveSetLimit && len(sets) > 0 {
				return sets
			} else if tried > moveSetLimit {
				return [][]*clusterview.Pod{o.reduced(device, m, forced, others)}
			}
			if set := append(slices.Clone(forced), more...); o.usable(device, m, o.released(set)) {
				sets = append(sets, set)
			}
		}
	}
	return sets
}

// reduced drops pods from a set as long as the rest suffices, the most important first. Forced pods stay.
func (o *occupied) reduced(device int, m demand, forced, others []*clusterview.Pod) []*clusterview.Pod {
	set := slices.SortedStableFunc(slices.Values(others), func(a, b *clusterview.Pod) int { return cmp.Compare(podPriority(b), podPriority(a)) })
	for i := 0; i < len(set); {
		without := slices.Delete(slices.Clone(set), i, i+1)
		if o.usable(device, m, o.released(slices.Concat(forced, without))) {
			set = without
		} else {
			i++
		}
	}
	return slices.Concat(forced, set)
}

// choose yields all subsets of a size.
func choose[T any](of []T, size int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		if size == 0 {
			yield(nil)
			return
		}
		for i := 0; i+size <= len(of); i++ {
			for rest := range choose(of[i+1:], size-1) {
				if !yield(append([]T{of[i]}, rest...)) {
					return
				}
			}
		}
	}
}

// index returns the index of a device; -1 if the pool does not have it.
func (o *occupied) index(name string) int {
	return slices.IndexFunc(o.devices, func(e entry) bool { return e.Name == name })
}

// overlapping returns the devices that cannot be allocated beside a device: neither in an empty pool, nor while the pods outside a set stay.
// They are in published order.
func (o *occupied) overlapping(device int, moved []*clusterview.Pod) (names []string) {
	target := &o.devices[device]
	released, all := o.released(moved), make([]bool, len(o.claims))
	for i := range all {
		all[i] = true
	}
	for i := range o.devices {
		both := slices.Concat(target.needs, o.devices[i].needs)
		if i != device && (!o.countersSuffice(both, all) || o.countersSuffice(o.devices[i].needs, released) && !o.countersSuffice(both, released)) {
			names = append(names, o.devices[i].Name)
		}
	}
	return names
}
