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

// scenario is a life that a process can be killed in.
type scenario struct {
	name string
	// early: the process can be killed in its start as well.
	early bool
	// before is what the kubelet did before the process was started; then changes what that left.
	before []Act
	then   func(t *testing.T, m *Machine)
	// static are the MIG devices that an administrator made before all that.
	static []MIGDevice
	// begun are the calls that were cut off then, left the claims that were unprepared then.
	interrupted []Act
	left        []string
	// config is the node's configuration at first, where the life changes it.
	config string
	acts   []Act
	// anyOutcome: nobody knows which acts fail.
	anyOutcome bool
	// refuse names the sites whose n-th fault point is refused.
	refuse map[string]int
	// long: it shows little that a shorter one does not, and is lived where there is time, with LIFECYCLE_LONG=1.
	long bool
}

// lived are the scenarios that there is time for. With the race detector, which is slow and looks for other things, claims on
// slices live one life alone, and intervals none.
func selectedScenarios() []*scenario {
	long := allScenarios()
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

// allScenarios tells whether there is time for all.
func allScenarios() bool { return os.Getenv("LIFECYCLE_LONG") != "" }

func prepares(claim string, gpus ...int) Act { return Act{Call: "prepare", Claim: claim, GPUs: gpus} }

func unprepares(claim string) Act { return Act{Call: "unprepare", Claim: claim} }

// withMonitor adds the monitor device.
func (a Act) withMonitor() Act {
	a.Monitor = true
	return a
}

// with plans effects on the claim's GPUs: all that there are.
func (a Act) with() Act {
	a.Effects = AllEffects
	return a
}

// failing expects the call to fail.
func (a Act) failing() Act {
	a.Fails = true
	return a
}

// What a plugin does by itself, when it becomes the node's lead and every now and then.
var recovers, collectsGarbage = Act{Call: "recover"}, Act{Call: "collectGarbage"}

// scenarios are the lives of claims on whole GPUs, of claims with a hardware effect in two steps, of claims on slices of GPUs, and of
// claims and nodes that set intervals.
var scenarios = slices.Concat(wholeScenarios, migScenarios, intervalScenarios, layoutScenarios)

var wholeScenarios = []scenario{
	{name: "whole GPU", early: true, acts: []Act{prepares("a", 0), prepares("a", 0), unprepares("a"), unprepares("a")}},
	{name: "two GPUs and the monitor device", acts: []Act{prepares("a", 0, 1).withMonitor(), unprepares("a")}},
	{name: "two claims with the monitor device", acts: []Act{
		prepares("a").withMonitor(), prepares("b", 0).withMonitor(), unprepares("a"), unprepares("b"),
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
		name: "an effect cannot be undone at first", refuse: map[string]int{"step.Undo computeMode": 1},
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
		then: killedIn("step.Undo computeMode", unprepares("a")), interrupted: []Act{unprepares("a")}, acts: []Act{recovers, prepares("b", 0).with(), unprepares("b"), unprepares("a")},
	},
	{
		name: "the next claim completes a pending cleanup", before: []Act{prepares("a", 0).with()}, then: withPendingCleanup("step.Undo computeMode", "a"), left: []string{"a"},
		acts: []Act{prepares("b", 0).with(), unprepares("b"), unprepares("a")},
	},
	{
		name: "recovery completes a pending cleanup", before: []Act{prepares("a", 0).with()}, then: withPendingCleanup("step.Undo computeMode", "a"), left: []string{"a"},
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
		name: "allocated again with other devices", before: []Act{prepares("a", 0).with()},
		acts: []Act{prepares("a", 1).with(), unprepares("a")},
	},
	{
		name: "the spec was deleted", before: []Act{prepares("a", 0), prepares("b", 1)}, then: sweeps,
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

// killedIn lets a process begin the act and die at the first fault point of that site, before it took effect.
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

// owes leaves the claim's effects as a debt, as undoing is refused at that site.
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
		_, debts := p.Counts()
		require.Equal(t, 1, debts)
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

// stage wipes the machine's directories and leaves on them what the scenario begins with.
func (m *Machine) setUp(t *testing.T, s *scenario) {
	t.Helper()
	m.lost, m.layoutChanges = "", s.config != ""
	m.parts.restart()
	require.NoError(t, errors.Join(os.RemoveAll(m.StateDir), os.RemoveAll(m.CDIDir), os.MkdirAll(m.StateDir, 0o750), m.reload()))
	for _, made := range s.static {
		require.NoError(t, m.createStatic(t.Context(), made))
	}
	m.inMachineTime(t, func(t *testing.T) { m.runBefore(t, s) })
	if s.then != nil {
		s.then(t, m)
	}
}

// lives lives what was before the scenario.
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
		require.NoError(t, p.offer.pass(t.Context(), changeSeconds))
	}
	for _, act := range s.before {
		require.NoError(t, m.act(t.Context(), p, act))
	}
	require.NoError(t, p.Close())
}

// loses takes the claim's record away.
func recordLost(claim string) func(*testing.T, *Machine) {
	return func(t *testing.T, m *Machine) {
		t.Helper()
		require.NoError(t, os.Remove(filepath.Join(m.StateDir, "claims", claim+".json")))
		m.lost = claim
	}
}
