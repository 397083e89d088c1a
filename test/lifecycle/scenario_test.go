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
	static []Slice
	// begun are the calls that were cut off then, left the claims that were unprepared then.
	begun []Act
	left  []string
	// config is the node's configuration at first, where the life changes it.
	config string
	acts   []Act
	// anyhow: nobody knows which acts fail.
	anyhow bool
	// refuse names the sites whose n-th touch is refused.
	refuse map[string]int
	// long: it shows little that a shorter one does not, and is lived where there is time, with LIFECYCLE_LONG=1.
	long bool
}

// lived are the scenarios that there is time for. With the race detector, which is slow and looks for other things, claims on
// slices live one life alone, and intervals none.
func lived() []*scenario {
	long := allLives()
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

// allLives tells whether there is time for all.
func allLives() bool { return os.Getenv("LIFECYCLE_LONG") != "" }

func prepares(claim string, gpus ...int) Act { return Act{Call: "prepare", Claim: claim, GPUs: gpus} }

func unprepares(claim string) Act { return Act{Call: "unprepare", Claim: claim} }

// looking adds the monitor device.
func (a Act) looking() Act {
	a.Looks = true
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
var settles, sweepsUp = Act{Call: "settle"}, Act{Call: "sweep"}

// scenarios are the lives of claims on whole GPUs, of claims with a hardware effect in two steps, of claims on slices of GPUs, and of
// claims and nodes that set intervals.
var scenarios = slices.Concat(wholeScenarios, sliceScenarios, intervalScenarios, offeringScenarios)

var wholeScenarios = []scenario{
	{name: "whole GPU", early: true, acts: []Act{prepares("a", 0), prepares("a", 0), unprepares("a"), unprepares("a")}},
	{name: "two GPUs and a look at all", acts: []Act{prepares("a", 0, 1).looking(), unprepares("a")}},
	{name: "two claims that look at one GPU", acts: []Act{
		prepares("a").looking(), prepares("b", 0).looking(), unprepares("a"), unprepares("b"),
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
		name: "an earlier process died between two effects", early: true, then: diesIn("step.Do persistence", prepares("a", 0).with()),
		begun: []Act{prepares("a", 0).with()},
		acts:  []Act{settles, prepares("a", 0).with(), unprepares("a")},
	},
	{
		name: "an earlier process died between two effects, and the claim comes again", then: diesIn("step.Do persistence", prepares("a", 0).with()),
		begun: []Act{prepares("a", 0).with()},
		acts:  []Act{prepares("a", 0).with(), unprepares("a")},
	},
	{
		name: "an earlier process died while undoing", before: []Act{prepares("a", 0).with()},
		then: diesIn("step.Undo computeMode", unprepares("a")), begun: []Act{unprepares("a")}, acts: []Act{settles, prepares("b", 0).with(), unprepares("b"), unprepares("a")},
	},
	{
		name: "a debt is paid by the next claim", before: []Act{prepares("a", 0).with()}, then: owes("step.Undo computeMode", "a"), left: []string{"a"},
		acts: []Act{prepares("b", 0).with(), unprepares("b"), unprepares("a")},
	},
	{
		name: "a debt is settled", before: []Act{prepares("a", 0).with()}, then: owes("step.Undo computeMode", "a"), left: []string{"a"},
		acts: []Act{settles, unprepares("a")},
	},
	{
		name: "after a reboot", before: []Act{prepares("a", 0).with(), prepares("b", 1)}, then: reboots,
		acts: []Act{settles, prepares("a", 0).with(), prepares("b", 1), unprepares("b"), unprepares("a")},
	},
	{
		name: "after a reboot that no pod outlived", before: []Act{prepares("a", 0).with(), prepares("b", 1)}, then: reboots,
		acts: []Act{unprepares("a"), unprepares("b")},
	},
	{
		name: "allocated again", before: []Act{prepares("a", 0).with()},
		acts: []Act{prepares("a", 1).with(), unprepares("a")},
	},
	{
		name: "the spec was swept away", before: []Act{prepares("a", 0), prepares("b", 1)}, then: sweeps,
		acts: []Act{settles, prepares("a", 0), unprepares("a"), unprepares("b")},
	},
	{
		name: "the spec was swept away, and the claim comes again", before: []Act{prepares("a", 0)}, then: sweeps,
		acts: []Act{prepares("a", 0), unprepares("a")},
	},
	{
		name: "a record is damaged", before: []Act{prepares("a", 0), prepares("b", 1)}, then: damages("a"),
		acts: []Act{settles, prepares("a", 0), unprepares("a"), unprepares("b")},
	},
	{
		name: "a record with effects is damaged", early: true, before: []Act{prepares("a", 0).with(), prepares("b", 1).with()}, then: damages("a"),
		acts: []Act{settles, sweepsUp, prepares("a", 0).with(), sweepsUp, unprepares("a"), unprepares("b")},
	},
	{
		name: "a spec that nobody owns", before: []Act{prepares("a", 0), prepares("b", 1)}, then: loses("a"),
		acts: []Act{sweepsUp, prepares("a", 0), unprepares("a"), unprepares("b")},
	},
}

// diesIn lets a process begin the act and die at the first touch of that site, before it took effect.
func diesIn(site string, act Act) func(*testing.T, *Machine) {
	return func(t *testing.T, m *Machine) {
		t.Helper()
		p, err := m.Start(t.Context(), Wiring{Effects: effectsOf([]Act{act}), Touch: func(at string, effect func() error) error {
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
func owes(undo, claim string) func(*testing.T, *Machine) {
	return func(t *testing.T, m *Machine) {
		t.Helper()
		p, err := m.Start(t.Context(), Wiring{Touch: func(site string, effect func() error) error {
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
func (m *Machine) stage(t *testing.T, s *scenario) {
	t.Helper()
	m.lost, m.offers = "", s.config != ""
	m.parts.restart()
	require.NoError(t, errors.Join(os.RemoveAll(m.StateDir), os.RemoveAll(m.CDIDir), os.MkdirAll(m.StateDir, 0o750), m.reload()))
	for _, made := range s.static {
		require.NoError(t, m.administer(t.Context(), made))
	}
	m.inTime(t, func(t *testing.T) { m.lives(t, s) })
	if s.then != nil {
		s.then(t, m)
	}
}

// lives lives what was before the scenario.
func (m *Machine) lives(t *testing.T, s *scenario) {
	t.Helper()
	if m.offers {
		require.NoError(t, errors.Join(os.RemoveAll(m.clusterFile()), m.tell(func(c *cluster) { c.Config = s.config })))
	}
	if len(s.before) == 0 && !m.offers {
		return
	}
	p, err := m.Start(t.Context(), Wiring{Effects: effectsOf(s.before)})
	require.NoError(t, err)
	if m.offers {
		require.NoError(t, p.offer.pass(t.Context(), aWhile))
	}
	for _, act := range s.before {
		require.NoError(t, m.act(t.Context(), p, act))
	}
	require.NoError(t, p.Close())
}

// loses takes the claim's record away.
func loses(claim string) func(*testing.T, *Machine) {
	return func(t *testing.T, m *Machine) {
		t.Helper()
		require.NoError(t, os.Remove(filepath.Join(m.StateDir, "claims", claim+".json")))
		m.lost = claim
	}
}
