package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// searchCalls limits the search for the holders of a device.
const searchCalls = 5000

// cheapest returns the claims whose release gives a device room for a request, the fewest pods first; false if no release does. Claims that
// are fixed cannot be released.
func (l *ledger) cheapest(place int, m demand, fixed map[*clusterview.Claim]bool) ([]*clusterview.Claim, bool) {
	var candidates []int
	for _, i := range l.related(place) {
		if claim := l.claims[i]; claim != nil && !fixed[claim] {
			candidates = append(candidates, i)
		}
	}
	s := search{
		enough: func(released []bool) bool { return l.usable(place, m, l.spread(candidates, released)) },
		alike:  func(i int) string { return l.signature(candidates[i]) },
		calls:  searchCalls,
	}
	for _, i := range candidates {
		s.claims = append(s.claims, l.claims[i])
	}
	found, ok := s.run()
	if !ok {
		return nil, false
	}
	claims := make([]*clusterview.Claim, len(found))
	for i, candidate := range found {
		claims[i] = s.claims[candidate]
	}
	return claims, true
}

// spread converts a choice of candidates to one of all claims.
func (l *ledger) spread(candidates []int, released []bool) []bool {
	all := make([]bool, len(l.claims))
	for i, candidate := range candidates {
		all[candidate] = released[i]
	}
	return all
}

// related lists the claims that use the device, or devices that consume the same counters.
func (l *ledger) related(place int) (claims []int) {
	e := &l.devices[place]
	counted := map[int]bool{}
	for _, n := range e.needs {
		counted[n.counter] = true
	}
	overdrawn := len(e.needs) > 0 && !l.countersSuffice(nil, make([]bool, len(l.claims)))
	seen := make([]bool, len(l.claims))
	for _, other := range l.used {
		o := &l.devices[other]
		if other != place && !slices.ContainsFunc(o.needs, func(n need) bool { return overdrawn || counted[n.counter] }) {
			continue
		}
		for _, u := range o.uses {
			if !seen[u.claim] {
				seen[u.claim] = true
				claims = append(claims, u.claim)
			}
		}
	}
	slices.Sort(claims)
	return claims
}

// signature is equal for claims that use the same device alike.
func (l *ledger) signature(claim int) string {
	var b strings.Builder
	for _, place := range l.used {
		for _, u := range l.devices[place].uses {
			if u.claim != claim {
				continue
			}
			fmt.Fprintf(&b, "%d", place)
			for _, name := range slices.Sorted(maps.Keys(u.consumed)) {
				fmt.Fprintf(&b, " %s=%d", name, u.consumed[name])
			}
			b.WriteByte(';')
		}
	}
	return b.String()
}
