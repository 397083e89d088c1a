package lifecycle

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// scenario is a sequence of acts in which a process can be killed.
type scenario struct {
	name string
	// early: the process can be killed in its start, too.
	early bool
	// before are acts of an earlier process; then changes the state that they left.
	before []Act
	then   func(t *testing.T, m *Machine)
	// static are the MIG devices that an administrator created before.
	static []MIGDevice
	// interrupted are the acts that were interrupted, left the claims that were unprepared by then.
	interrupted []Act
	left        []string
	// config is the initial node configuration, if the scenario changes it.
	config string
	// profiled: the node profiles the processes of claims.
	profiled bool
	// nullFamily: every GPU also advertises a null device; with config.
	nullFamily bool
	// health: the GPUs get problems.
	health bool
	acts   []Act
	// anyOutcome: any act may fail.
	anyOutcome bool
	// refuse maps a site to n: its n-th fault point fails.
	refuse map[string]int
	// gpusLost: the driver has lost all GPUs, until the process exits. Only with MPS.
	gpusLost bool
	// long: it is similar to a shorter one, and runs only with FULL=1.
	long bool
	// racing: several claims are recovered at once.
	racing bool
	// processes: it has several processes at once, which wait for each other's locks, and so not in fake time.
	processes bool
	// family is the key of its folders in families.
	family string
}

// races reports whether parts of the scenario run at once, so that the order of its fault points differs from run to run.
func (s *scenario) races() bool {
	return s.racing || slices.ContainsFunc(s.acts, func(a Act) bool { return a.Beside })
}

// selectedScenarios are the scenarios of this run. With the race detector, which is slow, only one scenario with MIG devices and none
// with intervals is run.
func selectedScenarios() []*scenario {
	long := full()
	var list []*scenario
	for i := range scenarios {
		s := &scenarios[i]
		if s.long && !long || testing.Short() && i > len(wholeScenarios) {
			continue
		}
		list = append(list, s)
	}
	return list
}

// full reports whether the run is to try every point of every scenario.
func full() bool { return os.Getenv("FULL") != "" }

func prepares(claim string, gpus ...int) Act { return Act{Call: "prepare", Claim: claim, GPUs: gpus} }

func unprepares(claim string) Act { return Act{Call: "unprepare", Claim: claim} }

// withMonitor adds the monitor device.
func (a Act) withMonitor() Act {
	a.Monitor = true
	return a
}

// withCounters adds the perfmon devices of these GPUs.
func (a Act) withCounters(gpus ...int) Act {
	a.Counters = gpus
	return a
}

// with plans all effects on the claim's GPUs.
func (a Act) with() Act {
	a.Effects = AllEffects
	return a
}

// failing expects the call to fail.
func (a Act) failing() Act {
	a.Fails = true
	return a
}

// Actions of a leading plugin in the background.
var recovers, collectsGarbage = Act{Call: "recover"}, Act{Call: "collectGarbage"}

// scenarios are all scenarios: of claims with whole GPUs, with a hardware effect in two steps, with MIG devices, with intervals, with
// metrics and with profiles; of layout changes; of former records; and of an added family.
var scenarios = slices.Concat(
	of("whole", wholeScenarios), of("mig", migScenarios), of("timeslice", intervalScenarios), of("metrics", metricsScenarios), of("profile", profileScenarios),
	of("profile", formerScenarios),
	of("layout", layoutScenarios), of("layout", familyScenarios),
)

// of sets the family of scenarios.
func of(family string, all []scenario) []scenario {
	for i := range all {
		all[i].family = family
	}
	return all
}

var wholeScenarios = []scenario{
	{name: "whole GPU", early: true, acts: []Act{prepares("a", 0), prepares("a", 0), unprepares("a"), unprepares("a")}},
	{name: "two GPUs and the monitor device", acts: []Act{prepares("a", 0, 1).withMonitor(), unprepares("a")}},
	{name: "two claims with the monitor device", acts: []Act{
		prepares("a").withMonitor(), prepares("b", 0).withMonitor(), unprepares("a"), unprepares("b"),
	}},
	{name: "the counters of a GPU from claim to claim", acts: []Act{
		prepares("a", 0).withCounters(0), unprepares("a"), prepares("b", 0).withCounters(1), prepares("c").withCounters(0), unprepares("b"), unprepares("c"),
	}},
	{name: "effects", acts: []Act{
		prepares("a", 0).with(), prepares("a", 0).with(), unprepares("a"), prepares("b", 0).with(), unprepares("b"),
	}},
	{name: "effects on two GPUs", acts: []Act{prepares("a", 0, 1).with(), unprepares("a")}},
	{
		name: "the second effect fails", refuse: map[string]int{"step.Do persistence": 1},
		acts: []Act{prepares("a", 0).with().failing(), prepares("a", 0).with(), unprepares("a")},
	},
	{
		name: "an effect cannot be undone at first", refuse: map[string]int{"step.Undo accounting": 1},
		acts: []Act{prepares("a", 0).with(), unprepares("a").failing(), unprepares("a")},
	},
	{
		name: "an earlier process was killed between two effects", early: true, then: killedIn("step.Do persistence", prepares("a", 0).with()),
		interrupted: []Act{prepares("a", 0).with()},
		acts:        []Act{recovers, prepares("a", 0).with(), unprepares("a")},
	},
	{
		name: "an earlier process was killed between two effects, and the claim is prepared again", then: killedIn("step.Do persistence", prepares("a", 0).with()),
		interrupted: []Act{prepares("a", 0).with()},
		acts:        []Act{prepares("a", 0).with(), unprepares("a")},
	},
	{
		name: "an earlier process was killed while undoing", before: []Act{prepares("a", 0).with()},
		then: killedIn("step.Undo accounting", unprepares("a")), interrupted: []Act{unprepares("a")}, acts: []Act{recovers, prepares("b", 0).with(), unprepares("b"), unprepares("a")},
	},
	{
		name: "the next claim completes a pending cleanup", before: []Act{prepares("a", 0).with()}, then: withPendingCleanup("step.Undo accounting", "a"), left: []string{"a"},
		acts: []Act{prepares("b", 0).with(), unprepares("b"), unprepares("a")},
	},
	{
		name: "recovery completes a pending cleanup", before: []Act{prepares("a", 0).with()}, then: withPendingCleanup("step.Undo accounting", "a"), left: []string{"a"},
		acts: []Act{recovers, unprepares("a")},
	},
	{
		name: "after a reboot", before: []Act{prepares("a", 0).with(), prepares("b", 1)}, then: reboots,
		acts: []Act{recovers, prepares("a", 0).with(), prepares("b", 1), unprepares("b"), unprepares("a")},
	},
	{
		name: "after a reboot without pods", before: []Act{prepares("a", 0).with(), prepares("b", 1)}, then: reboots,
		acts: []Act{unprepares("a"), unprepares("b")},
	},
	{
		name: "allocated again", before: []Act{prepares("a", 0).with()},
		acts: []Act{prepares("a", 1).with(), unprepares("a")},
	},
	{
		name: "the spec was deleted", racing: true, before: []Act{prepares("a", 0), prepares("b", 1)}, then: sweeps,
		acts: []Act{recovers, prepares("a", 0), unprepares("a"), unprepares("b")},
	},
	{
		name: "the spec was deleted, and the claim is prepared again", before: []Act{prepares("a", 0)}, then: sweeps,
		acts: []Act{prepares("a", 0), unprepares("a")},
	},
	{
		name: "a record is damaged", before: []Act{prepares("a", 0), prepares("b", 1)}, then: damages("a"),
		acts: []Act{recovers, prepares("a", 0), unprepares("a"), unprepares("b")},
	},
	{
		name: "a record with effects is damaged", early: true, before: []Act{prepares("a", 0).with(), prepares("b", 1).with()}, then: damages("a"),
		acts: []Act{recovers, collectsGarbage, prepares("a", 0).with(), collectsGarbage, unprepares("a"), unprepares("b")},
	},
	{
		name: "a spec without a record", before: []Act{prepares("a", 0), prepares("b", 1)}, then: recordLost("a"),
		acts: []Act{collectsGarbage, prepares("a", 0), unprepares("a"), unprepares("b")},
	},
}

// killedIn starts an act in a process that is killed at the first fault point of that site, before it took effect.
func killedIn(site string, act Act) func(*testing.T, *Machine) {
	return func(t *testing.T, m *Machine) {
		t.Helper()
		p, err := m.Start(t.Context(), Wiring{Effects: effectsOf([]Act{act}), FaultPoint: func(at string, effect func() error) error {
			if at == site {
				runtime.Goexit()
			}
			return effect()
		}})
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			t.Errorf("%s went on: %v", site, m.act(t.Context(), p, act))
		}()
		<-done
		require.NoError(t, p.Close())
	}
}

// withPendingCleanup leaves the claim's effects as a pending cleanup, because undoing fails at that site.
func withPendingCleanup(undo, claim string) func(*testing.T, *Machine) {
	return func(t *testing.T, m *Machine) {
		t.Helper()
		p, err := m.Start(t.Context(), Wiring{FaultPoint: func(site string, effect func() error) error {
			if site == undo {
				return errors.New("the GPU does not answer")
			}
			return effect()
		}})
		require.NoError(t, err)
		require.NoError(t, p.Unprepare(t.Context(), claim))
		_, pending := p.Counts()
		require.Equal(t, 1, pending)
		require.NoError(t, p.Close())
	}
}

func reboots(t *testing.T, m *Machine) {
	t.Helper()
	require.NoError(t, m.Reboot())
}

func sweeps(t *testing.T, m *Machine) {
	t.Helper()
	require.NoError(t, os.RemoveAll(m.CDIDir))
}

func damages(claim string) func(*testing.T, *Machine) {
	return func(t *testing.T, m *Machine) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(m.StateDir, "claims", claim+".json"), []byte(plantedDamage), 0o600))
	}
}

// setUp empties the machine's directories and creates the initial state of the scenario.
func (m *Machine) setUp(t *testing.T, s *scenario) {
	t.Helper()
	m.lost, m.layoutChanges, m.nullFamily = "", s.config != "", s.nullFamily
	m.parts.layout, m.parts.intervals = everyProfile(m.Node), nil
	m.fakeTime, m.waits = !s.processes, m.layoutChanges || s.configuresIntervals() || m.parts.mps != nil
	if s.configuresIntervals() {
		m.parts.layout = m.withSharedGPUs()
	}
	if m.parts.mps != nil {
		m.parts.layout = m.mpsLayout()
	}
	m.parts.restart()
	m.resetCounters()
	m.health = newGPUHealth(s.health)
	if s.health {
		m.Node.Heal()
	}
	require.NoError(t, errors.Join(os.RemoveAll(m.StateDir), os.RemoveAll(m.CDIDir), os.MkdirAll(m.StateDir, 0o750), m.reloadFirst(), m.setProfiled(s.profiled)))
	for _, made := range s.static {
		require.NoError(t, m.createStatic(t.Context(), made))
	}
	m.inMachineTime(t, func(t *testing.T) { m.runBefore(t, s) })
	if s.then != nil {
		m.inMachineTime(t, func(t *testing.T) { s.then(t, m) })
	}
}

// runBefore runs the acts before the scenario.
func (m *Machine) runBefore(t *testing.T, s *scenario) {
	t.Helper()
	if m.layoutChanges {
		require.NoError(t, errors.Join(os.RemoveAll(m.clusterFile()), m.updateCluster(func(c *cluster) { c.Config = s.config })))
	}
	if len(s.before) == 0 && !m.layoutChanges {
		return
	}
	p, err := m.Start(t.Context(), Wiring{Effects: effectsOf(s.before)})
	require.NoError(t, err)
	if m.layoutChanges {
		require.NoError(t, p.layout.wait(t.Context(), changeSeconds))
	}
	for _, act := range s.before {
		require.NoError(t, m.act(t.Context(), p, act))
	}
	require.NoError(t, p.Close())
}

// recordLost removes the claim's record.
func recordLost(claim string) func(*testing.T, *Machine) {
	return func(t *testing.T, m *Machine) {
		t.Helper()
		require.NoError(t, os.Remove(filepath.Join(m.StateDir, "claims", claim+".json")))
		m.lost = claim
	}
}
