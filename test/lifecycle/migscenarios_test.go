package lifecycle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Profiles of the GPUs with MIG.
const (
	profile1g = 19
	profile2g = 14
	profile3g = 9
)

// MIG devices of the first and of the second GPU with MIG; the devices of one GPU do not overlap.
var (
	small  = MIGDevice{GPU: 3, Profile: profile1g, Start: 0}
	medium = MIGDevice{GPU: 3, Profile: profile2g, Start: 2}
	large  = MIGDevice{GPU: 3, Profile: profile3g, Start: 4}

	otherSmall = MIGDevice{GPU: 4, Profile: profile1g, Start: 6}
	otherLarge = MIGDevice{GPU: 4, Profile: profile3g, Start: 0}
)

func preparesMIG(claim string, devices ...MIGDevice) Act {
	return Act{Call: "prepare", Claim: claim, MIGDevices: devices}
}

// beside starts the next act before this one has returned.
func (a Act) beside() Act {
	a.Beside = true
	return a
}

// shares prepares a claim with a share of each of these GPUs.
func shares(claim string, gpus ...int) Act { return Act{Call: "prepare", Claim: claim, Shares: gpus} }

// migScenarios are the scenarios of claims with MIG devices and shares.
var migScenarios = []scenario{
	{name: "a MIG device", acts: []Act{preparesMIG("a", large), preparesMIG("a", large), unprepares("a"), unprepares("a")}},
	{name: "a MIG device and the counters of its GPU", long: true, acts: []Act{
		preparesMIG("a", small).withCounters(3), preparesMIG("b", large), unprepares("a"), preparesMIG("c", small).withCounters(3), unprepares("b"), unprepares("c"),
	}},
	{name: "two MIG devices of one GPU in a claim", long: true, acts: []Act{preparesMIG("a", large, small), unprepares("a")}},
	{name: "four MIG devices on two GPUs", long: true, acts: []Act{preparesMIG("a", small, otherLarge, large, otherSmall), unprepares("a")}},
	{name: "two claims on one GPU", long: true, acts: []Act{
		preparesMIG("a", large), preparesMIG("b", small), unprepares("a"), preparesMIG("b", small), preparesMIG("c", large), unprepares("b"), unprepares("c"),
	}},
	{name: "two claims on one GPU at once", acts: []Act{
		preparesMIG("a", large).beside(), preparesMIG("b", small), unprepares("a").beside(), unprepares("b"),
	}},
	{name: "a MIG device, then the whole GPU, then a MIG device", acts: []Act{
		preparesMIG("a", small), unprepares("a"), prepares("b", 3), unprepares("b"), preparesMIG("c", large).withMonitor(), unprepares("c"),
	}},
	{name: "shares of one GPU at once", acts: []Act{
		shares("a", 3).beside(), shares("b", 3), shares("a", 3), unprepares("a").beside(), unprepares("b"),
	}},
	{name: "shares of one GPU at once, between MIG devices", long: true, acts: []Act{
		preparesMIG("a", small), unprepares("a"), shares("b", 3).beside(), shares("c", 3, 4), shares("b", 3), unprepares("b").beside(),
		unprepares("c"), preparesMIG("d", large), unprepares("d"),
	}},
	{
		name: "shares after a reboot", long: true, before: []Act{shares("a", 3), shares("b", 3)}, then: reboots,
		acts: []Act{recovers, shares("a", 3), unprepares("b"), unprepares("a")},
	},
	{
		name: "the compute instance is refused", refuse: map[string]int{"nvml.CreateComputeInstance": 1},
		acts: []Act{preparesMIG("a", large, small).failing(), preparesMIG("a", large, small), unprepares("a")},
	},
	{
		name: "the GPU instance cannot be removed at first", long: true, refuse: map[string]int{"nvml.DestroyInstance": 1},
		acts: []Act{preparesMIG("a", large), preparesMIG("b", small), unprepares("a").failing(), preparesMIG("c", medium), unprepares("a"), unprepares("b"), unprepares("c")},
	},
	{
		name: "the compute instance is refused, and its GPU instance cannot be removed", static: []MIGDevice{medium},
		refuse: map[string]int{"nvml.CreateComputeInstance": 1, "nvml.DestroyInstance": 1},
		acts:   []Act{preparesMIG("a", large).failing(), preparesMIG("b", small), preparesMIG("a", large), unprepares("a"), unprepares("b")},
	},
	{
		name: "an earlier process was killed and left a GPU instance without compute instance", early: true, before: []Act{preparesMIG("b", small)},
		then: killedIn("nvml.CreateComputeInstance", preparesMIG("a", large)), interrupted: []Act{preparesMIG("a", large)},
		acts: []Act{recovers, preparesMIG("a", large), unprepares("a"), unprepares("b")},
	},
	{
		name: "an earlier process was killed while destroying a MIG device", before: []Act{preparesMIG("a", large), preparesMIG("b", small)},
		then: killedIn("nvml.DestroyInstance", unprepares("a")), interrupted: []Act{unprepares("a")},
		acts: []Act{preparesMIG("c", large), unprepares("c"), unprepares("a"), unprepares("b")},
	},
	{
		name: "a MIG device with pending cleanup is requested", long: true, before: []Act{preparesMIG("a", large)}, then: withPendingCleanup("nvml.DestroyComputeInstance", "a"), left: []string{"a"},
		acts: []Act{preparesMIG("b", small), prepares("c", 4), preparesMIG("d", large), unprepares("d"), unprepares("c"), unprepares("b"), unprepares("a")},
	},
	{
		name: "a MIG device has a pending cleanup and the whole GPU is requested", long: true, before: []Act{preparesMIG("a", large)}, then: withPendingCleanup("nvml.DestroyInstance", "a"), left: []string{"a"},
		acts: []Act{prepares("b", 3), unprepares("b"), unprepares("a")},
	},
	{
		name: "the driver was loaded again", before: []Act{preparesMIG("a", large), preparesMIG("b", small)}, then: driverReloaded,
		acts: []Act{recovers, preparesMIG("a", large), unprepares("b"), unprepares("a")},
	},
	{
		name: "an administrator recreates what the driver has lost", before: []Act{preparesMIG("a", large), preparesMIG("b", small)}, then: replacedByAdministrator(large),
		acts: []Act{recovers, preparesMIG("b", small), unprepares("b"), unprepares("a")},
	},
	{
		name: "MIG devices after a reboot", long: true, before: []Act{preparesMIG("a", large), preparesMIG("b", small)}, then: reboots,
		acts: []Act{recovers, preparesMIG("a", large), unprepares("b"), unprepares("a")},
	},
	{
		name: "beside static MIG devices", long: true, static: []MIGDevice{large, {GPU: 3, Profile: profile1g, Start: 3, Bare: true}},
		acts: []Act{preparesMIG("a", large), preparesMIG("b", small), unprepares("a"), unprepares("b")},
	},
	{
		name: "a MIG device, allocated again", long: true, before: []Act{preparesMIG("a", large)},
		acts: []Act{preparesMIG("a", small, otherSmall), unprepares("a")},
	},
}

// replacedByAdministrator reloads the driver, and an administrator creates a MIG device. It has the id and UUID of the lost one.
func replacedByAdministrator(s MIGDevice) func(*testing.T, *Machine) {
	return func(t *testing.T, m *Machine) {
		t.Helper()
		driverReloaded(t, m)
		require.NoError(t, m.createStatic(t.Context(), s))
	}
}

func driverReloaded(t *testing.T, m *Machine) {
	t.Helper()
	require.NoError(t, m.reloadDriver())
}
