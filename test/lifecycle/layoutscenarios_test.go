package lifecycle

import (
	"encoding/json"
	"os"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// offered is a configuration in which the first GPU that can be cut has these modes; the others are whole.
func offered(modes string) string {
	return "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: [{select: {indices: [3]}, " + modes + "}]\n"
}

var (
	whole    = offered("modes: [whole]")
	cut      = offered("modes: [mig], mig: {profiles: [3g.40gb, 1g.10gb]}")
	inThree  = offered("modes: [timeslice], timeSlice: {replicas: 3}")
	inTwo    = offered("modes: [timeslice], timeSlice: {replicas: 2}")
	wholeToo = offered("modes: [whole, mig], mig: {profiles: [3g.40gb, 1g.10gb]}")
)

// configures changes the node's configuration, and lets time pass.
func configures(config string) Act { return Act{Call: "configure", Config: config} }

// allocates gives a claim a GPU, and no kubelet prepares it yet.
func allocates(claim string, gpus ...int) Act { return Act{Call: "allocate", Claim: claim, GPUs: gpus} }

// deletes takes a claim out of the API server, and the kubelet has not heard of it yet.
func deletes(claim string) Act { return Act{Call: "delete", Claim: claim} }

// passes lets time pass.
var passes = Act{Call: "pass"}

// stale: the claim was given what the node does not offer.
func (a Act) stale() Act {
	a.Stale = true
	return a
}

// offeringScenarios are the lives of a node whose configuration changes what a GPU is offered as.
var offeringScenarios = []scenario{
	{
		name: "a GPU is to be cut", long: true, config: whole,
		acts: []Act{configures(cut), prepares("b", 3).stale().failing(), unprepares("b"), cuts("c", large), unprepares("c")},
	},
	{
		name: "a GPU is to be cut while a claim has it", config: whole,
		acts: []Act{
			prepares("a", 3), configures(cut), prepares("a", 3), cuts("b", large).stale().failing(), prepares("c", 3).failing(), unprepares("a"),
			passes, cuts("d", large), unprepares("d"), unprepares("b"), unprepares("c"),
		},
	},
	{
		name: "a GPU is to be cut while a claim was given it", config: whole,
		acts: []Act{allocates("a", 3), configures(cut), prepares("a", 3), unprepares("a"), passes},
	},
	{
		name: "a GPU is to be whole while a claim that is deleted has a slice", config: cut,
		acts: []Act{cuts("a", large), deletes("a"), configures(whole), unprepares("a"), passes, prepares("b", 3), unprepares("b")},
	},
	{
		name: "a GPU is to have other replicas while a claim has one", config: inThree,
		acts: []Act{shares("a", 3), configures(inTwo), unprepares("a"), passes, shares("b", 3), unprepares("b")},
	},
	{name: "a change is taken back", long: true, config: whole, acts: []Act{prepares("a", 3), configures(cut), configures(whole), unprepares("a")}},
	{name: "a GPU is to be whole too, and is not any more", early: true, config: cut, acts: []Act{configures(wholeToo), configures(cut)}},
	{
		name: "a GPU is to be cut after a reboot", early: true, long: true, config: whole, before: []Act{prepares("a", 3)}, then: reboots,
		acts: []Act{settles, configures(cut), unprepares("a"), passes},
	},
}

// inTime runs it: where offerings change, in a time that passes when all wait.
func (m *Machine) inTime(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	if !m.offers {
		run(t)
		return
	}
	synctest.Test(t, run)
}

// remembered is what the API server has, as text; empty where that does not change.
func (m *Machine) remembered(t *testing.T) string {
	t.Helper()
	if !m.offers {
		return ""
	}
	raw, err := os.ReadFile(m.clusterFile())
	require.NoError(t, err)
	return string(raw)
}

// remember has the API server have that.
func (m *Machine) remember(text string) error {
	if text == "" {
		return nil
	}
	return os.WriteFile(m.clusterFile(), []byte(text), 0o600)
}

// TestALifeInItsOwnTime is what a child lives.
func TestALifeInItsOwnTime(t *testing.T) {
	text := os.Getenv(childOrder)
	if text == "" {
		t.Skip("a child lives it")
	}
	var o order
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	synctest.Test(t, func(t *testing.T) { require.NoError(t, live(t.Context(), o, os.Stdout)) })
}
