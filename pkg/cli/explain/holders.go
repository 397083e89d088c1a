package explain

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// price is how much the release of claims disturbs: fewer pods first, then a lower priority, then fewer pods that are not being deleted,
// then fewer claims.
type price struct {
	pods     int
	priority int32
	living   int
	claims   int
}

func (p price) compare(q price) int {
	return cmp.Or(cmp.Compare(p.pods, q.pods), cmp.Compare(p.priority, q.priority), cmp.Compare(p.living, q.living),
		cmp.Compare(p.claims, q.claims))
}

// priceOf returns the price of the release of claims. A pod with several of them counts once.
func priceOf(claims []*clusterview.Claim) price {
	p := price{claims: len(claims)}
	seen := map[types.NamespacedName]bool{}
	for _, claim := range claims {
		for _, pod := range claim.Pods {
			name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
			if seen[name] {
				continue
			}
			seen[name] = true
			p.pods++
			if pod.DeletionTimestamp == nil {
				p.living++
			}
			if priority := podPriority(pod); p.pods == 1 || priority > p.priority {
				p.priority = priority
			}
		}
	}
	return p
}

func podPriority(pod *clusterview.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// search is for the cheapest claims whose release satisfies a condition. More released claims never harm the condition.
type search struct {
	claims []*clusterview.Claim
	// enough reports whether the condition holds if these claims are released; released has an element for each of the claims.
	enough func(released []bool) bool
	// alike is equal for claims that the condition does not distinguish; nil or "" for claims that are like no other.
	alike func(claim int) string
	// calls limits the calls of enough. Beyond it the result suffices, and each of its claims is necessary, but others may be cheaper.
	calls int

	order              []int
	disjoint, released []bool
	best               []int
	price              price
	found              bool
}

// run returns the indices of the claims in their order; false if the release of all does not suffice.
func (s *search) run() ([]int, bool) {
	n := len(s.claims)
	all := make([]bool, n)
	for i := range all {
		all[i] = true
	}
	if !s.ask(all) {
		return nil, false
	}
	s.released = make([]bool, n)
	var forced []int
	for i := range n {
		all[i] = false
		if !s.ask(all) {
			forced = append(forced, i)
			s.released[i] = true
		} else {
			s.order = append(s.order, i)
		}
		all[i] = true
	}
	if s.ask(s.released) {
		return forced, true
	}
	s.sort()
	s.choose(0, forced)
	if !s.found {
		s.reduce(all)
	}
	slices.Sort(s.best)
	return s.best, true
}

func (s *search) ask(released []bool) bool {
	s.calls--
	return s.enough(released)
}

// sort orders the claims that are not necessary, the cheapest first.
func (s *search) sort() {
	slices.SortStableFunc(s.order, func(a, b int) int { return s.priceOf(a).compare(s.priceOf(b)) })
	s.disjoint = make([]bool, len(s.claims))
	seen := map[*clusterview.Pod]int{}
	for _, claim := range s.claims {
		for _, pod := range claim.Pods {
			seen[pod]++
		}
	}
	for i, claim := range s.claims {
		s.disjoint[i] = !slices.ContainsFunc(claim.Pods, func(pod *clusterview.Pod) bool { return seen[pod] > 1 })
	}
}

func (s *search) priceOf(indices ...int) price {
	claims := make([]*clusterview.Claim, len(indices))
	for i, index := range indices {
		claims[i] = s.claims[index]
	}
	return priceOf(claims)
}

// choose tries all sets of the claims from a position on, together with the chosen ones, and drops sets that are not cheaper than the best.
func (s *search) choose(from int, chosen []int) {
	now := s.priceOf(chosen...)
	if s.found && now.compare(s.price) >= 0 || s.calls <= 0 {
		return
	}
	if s.ask(s.released) {
		s.best, s.price, s.found = slices.Clone(chosen), now, true
		return
	}
	if from == len(s.order) || !s.reachable(from) {
		return
	}
	next := s.order[from]
	s.released[next] = true
	s.choose(from+1, append(slices.Clip(chosen), next))
	s.released[next] = false
	// A claim like this one is not cheaper.
	from++
	for from < len(s.order) && s.like(next, s.order[from]) {
		from++
	}
	s.choose(from, chosen)
}

// reachable reports whether the condition can hold with all claims from a position on.
func (s *search) reachable(from int) bool {
	with := slices.Clone(s.released)
	for _, i := range s.order[from:] {
		with[i] = true
	}
	return s.ask(with)
}

func (s *search) like(a, b int) bool {
	return s.alike != nil && s.disjoint[a] && s.disjoint[b] && s.alike(a) != "" && s.alike(a) == s.alike(b)
}

// reduce drops claims from all as long as the rest suffices, the dearest first.
func (s *search) reduce(all []bool) {
	for _, i := range slices.Backward(s.order) {
		all[i] = false
		if !s.enough(all) {
			all[i] = true
		}
	}
	for i, released := range all {
		if released {
			s.best = append(s.best, i)
		}
	}
}
