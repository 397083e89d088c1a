package explain_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
)

// scattered is a random cluster whose GPUs are partly full, and a pod that waits for a larger MIG device.
type scattered struct {
	*fragments
	random  *rand.Rand
	nodes   []string
	running []*object
	waiting *object
}

// smallProfiles are requested more often than others.
var smallProfiles = []string{"1g.10gb", "1g.10gb", "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb"}

// scatter starts pods until GPUs are full, and ends some of them.
func scatter(t *testing.T, seed uint64) *scattered {
	t.Helper()
	s := &scattered{fragments: newFragments(t), random: rand.New(rand.NewPCG(seed, 38))}
	for i := range 2 + s.random.IntN(2) {
		s.nodes = append(s.nodes, fmt.Sprintf("n%d", i))
		s.node(s.nodes[i], "h100-80", 1+s.random.IntN(2), partitioned)
	}
	for i := range 60 {
		o := s.podByCapacity(fmt.Sprintf("p%d", i), smallProfiles[s.random.IntN(len(smallProfiles))])
		if priority := int32(s.random.IntN(3)); priority > 0 {
			o.pod.Spec.Priority = &priority
		}
		if s.random.IntN(8) == 0 {
			o.pod.OwnerReferences = nil
		}
		if !s.run(o, s.nodes[s.random.IntN(len(s.nodes))]) {
			s.remove(o)
			continue
		}
		s.running = append(s.running, o)
	}
	s.random.Shuffle(len(s.running), func(i, j int) { s.running[i], s.running[j] = s.running[j], s.running[i] })
	for range len(s.running) * (2 + s.random.IntN(2)) / 12 {
		s.remove(s.running[0])
		s.running = s.running[1:]
	}
	s.waiting = s.pod("waits", profileClass([]string{"2g.20gb", "3g.40gb", "4g.40gb", "4g.40gb"}[s.random.IntN(4)]))
	return s
}

// plan returns the plan for the waiting pod, and the reason if there is none.
func (s *scattered) plan() (*explain.Plan, *explain.NoPlan) {
	s.t.Helper()
	solver := s.solver()
	plan, err := explain.Defragment(s.t.Context(), solver, solver.Cluster.FindPod("ml", "waits"), nil)
	if none, ok := errors.AsType[*explain.NoPlan](err); ok {
		return nil, none
	}
	require.NoError(s.t, err)
	return plan, nil
}

// evict deletes the pods of a plan, and returns the pods that are created in their place, in the order of the plan.
func (s *scattered) evict(plan *explain.Plan, times int) (again []*object) {
	for _, move := range plan.Moves {
		i := slices.IndexFunc(s.running, func(o *object) bool { return o.pod.Name == move.Pod })
		require.GreaterOrEqual(s.t, i, 0, "a pod that runs: %s", move.Pod)
		old := s.running[i]
		require.NotEmpty(s.t, old.pod.OwnerReferences, "a pod with a controller")
		s.remove(old)
		again = append(again, s.podFor(fmt.Sprintf("%s-again-%d", old.pod.Name, times), old.claim.Spec.Devices.Requests[0].Exactly))
	}
	return again
}

// restore is the cluster before a try.
func (s *scattered) restore(again []*object) {
	for _, o := range again {
		s.remove(o)
	}
	for _, o := range s.running {
		s.put(o)
	}
}

// rules puts or removes the rules of a plan.
func (s *scattered) rules(plan *explain.Plan, put bool) {
	for _, device := range plan.Tainted {
		name := "rule-" + device
		if !put {
			s.store.DeleteRule(name)
			continue
		}
		s.store.PutRule(&resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &plan.Target.Driver, Pool: &plan.Target.Pool, Device: &device},
			Taint:          resourceapi.DeviceTaint{Key: "gpu.prism.dev/defragment", Effect: resourceapi.DeviceTaintEffectNoSchedule},
		}})
	}
}

// placed places pods in a random order on random nodes, and returns how many found a place.
func (s *scattered) placed(pods []*object) (n int) {
	pods = slices.Clone(pods)
	s.random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	for _, o := range pods {
		for _, i := range s.random.Perm(len(s.nodes)) {
			if s.run(o, s.nodes[i]) {
				n++
				break
			}
		}
	}
	return n
}

// fitsOnTarget reports whether the waiting pod gets a device of the GPU of the plan.
func (s *scattered) fitsOnTarget(plan *explain.Plan) bool {
	solver := s.solver()
	node := solver.Cluster.FindNode(plan.Target.Node)
	i := slices.IndexFunc(node.Pools, func(p *clusterview.Pool) bool { return p.Name == plan.Target.Pool })
	found, err := solver.Allocate(s.t.Context(), explain.Question{
		Node: node, Pools: node.Pools[i : i+1], Claims: []*resourceapi.ResourceClaim{s.waiting.claim},
	})
	require.NoError(s.t, err)
	return found != nil
}

// The rules of a plan reserve the device: whichever order and nodes the scheduler picks for the new pods, none gets a device that overlaps.
func TestDefragment_RandomClusters_RulesReserveTheDevice(t *testing.T) {
	t.Parallel()
	const clusters, orders = 60, 3
	plans, tries, taken, homeless := 0, 0, 0, 0
	reasons := map[string]int{}
	for seed := range uint64(clusters) {
		s := scatter(t, seed)
		plan, none := s.plan()
		if plan == nil {
			kind, _, _ := strings.Cut(none.Sentence, ": ")
			reasons[strings.Fields(kind)[0]]++
			continue
		}
		plans++
		s.inPlanOrder(plan, seed)
		for i := range orders {
			tries++
			s.rules(plan, true)
			again := s.evict(plan, i)
			homeless += len(again) - s.placed(again)
			assert.True(t, s.fitsOnTarget(plan), "seed %d: a new pod took the place of the plan %+v", seed, plan)
			s.restore(again)
			s.rules(plan, false)
			again = s.evict(plan, i)
			s.placed(again)
			if !s.fitsOnTarget(plan) {
				taken++
			}
			s.restore(again)
		}
	}
	t.Logf("%d plans in %d clusters, others: %v; without rules new pods took the place in %d of %d tries; with rules, %d new pods waited",
		plans, clusters, reasons, taken, tries, homeless)
	assert.Greater(t, plans, clusters/4, "the property was tested")
	assert.Positive(t, taken, "without rules new pods take the place")
}

// inPlanOrder checks that the waiting pod and then each moved pod get devices on the nodes of the plan.
func (s *scattered) inPlanOrder(plan *explain.Plan, seed uint64) {
	s.t.Helper()
	s.rules(plan, true)
	again := s.evict(plan, 99)
	require.True(s.t, s.run(s.waiting, plan.Target.Node), "seed %d: %+v", seed, plan)
	for i, o := range again {
		require.True(s.t, s.run(o, plan.Moves[i].To), "seed %d: %s has no place on %s: %+v", seed, o.pod.Name, plan.Moves[i].To, plan)
	}
	s.restore(again)
	s.remove(s.waiting)
	s.rules(plan, false)
	s.waiting = s.pod("waits", s.waiting.claim.Spec.Devices.Requests[0].Exactly.DeviceClassName)
}

// fewest returns the size of the smallest set of pods that a plan could move, by trying all sets; 0 if there is none.
func (s *scattered) fewest(most int) int {
	for size := 1; size <= most; size++ {
		for _, set := range subsets(s.running, size) {
			if s.helps(set) {
				return size
			}
		}
	}
	return 0
}

// helps reports whether the waiting pod, and then all pods of a set in some order, get devices without the set, and whether each pod of the
// set is in the way.
func (s *scattered) helps(set []*object) bool {
	node := set[0].pod.Spec.NodeName
	if slices.ContainsFunc(set, func(o *object) bool { return o.pod.OwnerReferences == nil || o.pod.Spec.NodeName != node }) {
		return false
	}
	solver := s.solver()
	without := func(set []*object) (func(*clusterview.Claim) bool, []resourceapi.AllocationResult) {
		released := func(c *clusterview.Claim) bool {
			return slices.ContainsFunc(set, func(o *object) bool { return o.claim.UID == c.UID })
		}
		found, err := solver.Allocate(s.t.Context(), explain.Question{
			Node: solver.Cluster.FindNode(node), Claims: []*resourceapi.ResourceClaim{s.waiting.claim}, Released: released,
		})
		require.NoError(s.t, err)
		return released, found
	}
	released, found := without(set)
	if found == nil {
		return false
	}
	for i := range set {
		if _, fits := without(slices.Delete(slices.Clone(set), i, i+1)); fits != nil {
			return false
		}
	}
	return s.fitAll(solver, set, released, found[0].Devices.Results)
}

func (s *scattered) fitAll(
	solver *explain.Solver, set []*object, released func(*clusterview.Claim) bool, more []resourceapi.DeviceRequestAllocationResult,
) bool {
	if len(set) == 0 {
		return true
	}
	for i, o := range set {
		claim := o.claim.DeepCopy()
		claim.Status = resourceapi.ResourceClaimStatus{}
		for _, node := range solver.Cluster.Nodes {
			found, err := solver.Allocate(s.t.Context(), explain.Question{Node: node, Claims: []*resourceapi.ResourceClaim{claim}, Released: released, More: more})
			require.NoError(s.t, err)
			if found == nil {
				continue
			}
			if s.fitAll(solver, slices.Delete(slices.Clone(set), i, i+1), released, append(slices.Clip(more), found[0].Devices.Results...)) {
				return true
			}
		}
	}
	return false
}

func subsets[T any](of []T, size int) (sets [][]T) {
	if size == 0 {
		return [][]T{nil}
	}
	for i := 0; i+size <= len(of); i++ {
		for _, rest := range subsets(of[i+1:], size-1) {
			sets = append(sets, append([]T{of[i]}, rest...))
		}
	}
	return sets
}

func TestDefragment_SmallClusters_NoSmallerSet(t *testing.T) {
	t.Parallel()
	const most = 3
	sizes := map[int]int{}
	for seed := range uint64(18) {
		s := scatter(t, 1000+seed)
		plan, none := s.plan()
		if none != nil && none.Fits {
			continue
		}
		want := s.fewest(most)
		sizes[want]++
		switch {
		case plan == nil:
			assert.Zero(t, want, "seed %d: %s", seed, none.Sentence)
		case len(plan.Moves) <= most:
			assert.Len(t, plan.Moves, want, "seed %d", seed)
		default:
			assert.Zero(t, want, "seed %d: %+v", seed, plan)
		}
	}
	t.Log("clusters by size of the smallest set:", sizes)
	assert.Positive(t, sizes[1])
	assert.Positive(t, sizes[2])
}
