package lifecycle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Profiles of the GPUs that can be cut.
const (
	profile1g = 19
	profile2g = 14
	profile3g = 9
)

// Slices of the first and of the second GPU that can be cut; those of one GPU do not overlap.
var (
	small  = Slice{GPU: 3, Profile: profile1g, Start: 0}
	medium = Slice{GPU: 3, Profile: profile2g, Start: 2}
	large  = Slice{GPU: 3, Profile: profile3g, Start: 4}

	otherSmall = Slice{GPU: 4, Profile: profile1g, Start: 6}
	otherLarge = Slice{GPU: 4, Profile: profile3g, Start: 0}
)

func cuts(claim string, given ...Slice) Act { return Act{Call: "prepare", Claim: claim, Slices: given} }

// beside has the next act begin before this one ends.
func (a Act) beside() Act {
	a.Beside = true
	return a
}

// shares prepares a claim for a share of each of these GPUs.
func shares(claim string, gpus ...int) Act { return Act{Call: "prepare", Claim: claim, Shares: gpus} }

// sliceScenarios are the lives of claims on slices of GPUs.
var sliceScenarios = []scenario{
	{name: "a slice", acts: []Act{cuts("a", large), cuts("a", large), unprepares("a"), unprepares("a")}},
	{name: "two slices of one GPU in a claim", long: true, acts: []Act{cuts("a", large, small), unprepares("a")}},
	{name: "four slices on two GPUs", long: true, acts: []Act{cuts("a", small, otherLarge, large, otherSmall), unprepares("a")}},
	{name: "two claims on one GPU", long: true, acts: []Act{
		cuts("a", large), cuts("b", small), unprepares("a"), cuts("b", small), cuts("c", large), unprepares("b"), unprepares("c"),
	}},
	{name: "two claims on one GPU at once", acts: []Act{
		cuts("a", large).beside(), cuts("b", small), unprepares("a").beside(), unprepares("b"),
	}},
	{name: "a slice, then the whole GPU, then a slice", acts: []Act{
		cuts("a", small), unprepares("a"), prepares("b", 3), unprepares("b"), cuts("c", large).looking(), unprepares("c"),
	}},
	{name: "shares of one GPU at once", acts: []Act{
		shares("a", 3).beside(), shares("b", 3), shares("a", 3), unprepares("a").beside(), unprepares("b"),
	}},
	{name: "shares of one GPU at once, after a slice and before one", long: true, acts: []Act{
		cuts("a", small), unprepares("a"), shares("b", 3).beside(), shares("c", 3, 4), shares("b", 3), unprepares("b").beside(),
		unprepares("c"), cuts("d", large), unprepares("d"),
	}},
	{
		name: "shares after a reboot", long: true, before: []Act{shares("a", 3), shares("b", 3)}, then: reboots,
		acts: []Act{settles, shares("a", 3), unprepares("b"), unprepares("a")},
	},
	{
		name: "the compute instance is refused", refuse: map[string]int{"nvml.CreateComputeInstance": 1},
		acts: []Act{cuts("a", large, small).failing(), cuts("a", large, small), unprepares("a")},
	},
	{
		name: "the GPU instance cannot be removed at first", long: true, refuse: map[string]int{"nvml.DestroyInstance": 1},
		acts: []Act{cuts("a", large), cuts("b", small), unprepares("a").failing(), cuts("c", medium), unprepares("a"), unprepares("b"), unprepares("c")},
	},
	{
		name: "the compute instance is refused, and its GPU instance cannot be removed", static: []Slice{medium},
		refuse: map[string]int{"nvml.CreateComputeInstance": 1, "nvml.DestroyInstance": 1},
		acts:   []Act{cuts("a", large).failing(), cuts("b", small), cuts("a", large), unprepares("a"), unprepares("b")},
	},
	{
		name: "an earlier process died and left a GPU instance alone", early: true, before: []Act{cuts("b", small)},
		then: diesIn("nvml.CreateComputeInstance", cuts("a", large)), begun: []Act{cuts("a", large)},
		acts: []Act{settles, cuts("a", large), unprepares("a"), unprepares("b")},
	},
	{
		name: "an earlier process died while removing a slice", before: []Act{cuts("a", large), cuts("b", small)},
		then: diesIn("nvml.DestroyInstance", unprepares("a")), begun: []Act{unprepares("a")},
		acts: []Act{cuts("c", large), unprepares("c"), unprepares("a"), unprepares("b")},
	},
	{
		name: "a slice that is owed is needed", long: true, before: []Act{cuts("a", large)}, then: owes("nvml.DestroyComputeInstance", "a"), left: []string{"a"},
		acts: []Act{cuts("b", small), prepares("c", 4), cuts("d", large), unprepares("d"), unprepares("c"), unprepares("b"), unprepares("a")},
	},
	{
		name: "a slice is owed and the whole GPU is needed", long: true, before: []Act{cuts("a", large)}, then: owes("nvml.DestroyInstance", "a"), left: []string{"a"},
		acts: []Act{prepares("b", 3), unprepares("b"), unprepares("a")},
	},
	{
		name: "the driver was loaded anew", before: []Act{cuts("a", large), cuts("b", small)}, then: forgets,
		acts: []Act{settles, cuts("a", large), unprepares("b"), unprepares("a")},
	},
	{
		name: "an administrator makes what the driver has lost", before: []Act{cuts("a", large), cuts("b", small)}, then: losesTo(large),
		acts: []Act{settles, cuts("b", small), unprepares("b"), unprepares("a")},
	},
	{
		name: "slices after a reboot", long: true, before: []Act{cuts("a", large), cuts("b", small)}, then: reboots,
		acts: []Act{settles, cuts("a", large), unprepares("b"), unprepares("a")},
	},
	{
		name: "beside an administrator's slices", long: true, static: []Slice{large, {GPU: 3, Profile: profile1g, Start: 3, Bare: true}},
		acts: []Act{cuts("a", large), cuts("b", small), unprepares("a"), unprepares("b")},
	},
	{
		name: "a slice, allocated again", long: true, before: []Act{cuts("a", large)},
		acts: []Act{cuts("a", small, otherSmall), unprepares("a")},
	},
}

// losesTo loads the driver again, after which an administrator makes a MIG device. It has the id and UUID of the one that was there.
func losesTo(s Slice) func(*testing.T, *Machine) {
	return func(t *testing.T, m *Machine) {
		t.Helper()
		forgets(t, m)
		require.NoError(t, m.administer(t.Context(), s))
	}
}

func forgets(t *testing.T, m *Machine) {
	t.Helper()
	require.NoError(t, m.forget())
}
