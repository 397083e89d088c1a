package lifecycle

import (
	"encoding/json"
	"os"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// offered is a configuration in which the first GPU that can be cut has these modes; the others are whole.
func layoutConfig(modes string) string {
	return "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: [{select: {indices: [3]}, " + modes + "}]\n"
}

var (
	whole         = layoutConfig("modes: [whole]")
	migOnly       = layoutConfig("modes: [mig], mig: {profiles: [3g.40gb, 1g.10gb]}")
	threeReplicas = layoutConfig("modes: [timeslice], timeSlice: {replicas: 3}")
	twoReplicas   = layoutConfig("modes: [timeslice], timeSlice: {replicas: 2}")
	wholeAndMIG   = layoutConfig("modes: [whole, mig], mig: {profiles: [3g.40gb, 1g.10gb]}")
)

// configures changes the node's configuration, and lets time pass.
func configures(config string) Act { return Act{Call: "configure", Config: config} }

// allocates gives a claim a GPU, and no kubelet prepares it yet.
func allocates(claim string, gpus ...int) Act { return Act{Call: "allocate", Claim: claim, GPUs: gpus} }

// deletes takes a claim out of the API server, and the kubelet has not heard of it yet.
func deletes(claim string) Act { return Act{Call: "delete", Claim: claim} }

// passes lets time pass.
var passes = Act{Call: "wait"}

// stale: the claim was given what the node does not offer.
func (a Act) stale() Act {
	a.Stale = true
	return a
}

// layoutScenarios are the lives of a node whose configuration changes what a GPU is offered as.
var layoutScenarios = []scenario{
	{
		name: "a GPU changes to MIG", long: true, config: whole,
		acts: []Act{configures(migOnly), prepares("b", 3).stale().failing(), unprepares("b"), preparesMIG("c", large), unprepares("c")},
	},
	{
		name: "a GPU changes to MIG while it is prepared", config: whole,
		acts: []Act{
			prepares("a", 3), configures(migOnly), prepares("a", 3), preparesMIG("b", large).stale().failing(), prepares("c", 3).failing(), unprepares("a"),
			passes, preparesMIG("d", large), unprepares("d"), unprepares("b"), unprepares("c"),
		},
	},
	{
		name: "a GPU changes to MIG while it is allocated", config: whole,
		acts: []Act{allocates("a", 3), configures(migOnly), prepares("a", 3), unprepares("a"), passes},
	},
	{
		name: "a GPU changes to whole while a deleted claim has a MIG device", config: migOnly,
		acts: []Act{preparesMIG("a", large), deletes("a"), configures(whole), unprepares("a"), passes, prepares("b", 3), unprepares("b")},
	},
	{
		name: "a GPU changes its replicas while a claim has one", config: threeReplicas,
		acts: []Act{shares("a", 3), configures(twoReplicas), unprepares("a"), passes, shares("b", 3), unprepares("b")},
	},
	{name: "a change is reverted", long: true, config: whole, acts: []Act{prepares("a", 3), configures(migOnly), configures(whole), unprepares("a")}},
	{name: "a change that adds a layout is reverted", early: true, config: migOnly, acts: []Act{configures(wholeAndMIG), configures(migOnly)}},
	{
		name: "a GPU changes to MIG after a reboot", early: true, long: true, config: whole, before: []Act{prepares("a", 3)}, then: reboots,
		acts: []Act{recovers, configures(migOnly), unprepares("a"), passes},
	},
}

// inTime runs it: where offerings change, in a time that passes when all wait.
func (m *Machine) inMachineTime(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	if !m.layoutChanges {
		run(t)
		return
	}
	synctest.Test(t, run)
}

// remembered is what the API server has, as text; empty where that does not change.
func (m *Machine) clusterState(t *testing.T) string {
	t.Helper()
	if !m.layoutChanges {
		return ""
	}
	raw, err := os.ReadFile(m.clusterFile())
	require.NoError(t, err)
	return string(raw)
}

// remember has the API server have that.
func (m *Machine) setClusterState(text string) error {
	if text == "" {
		return nil
	}
	return os.WriteFile(m.clusterFile(), []byte(text), 0o600)
}

// TestChild_LayoutScenario_FakeTime is what a child lives.
func TestChild_LayoutScenario_FakeTime(t *testing.T) {
	text := os.Getenv(childEnv)
	if text == "" {
		t.Skip("runs in a child process only")
	}
	var o childSpec
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	synctest.Test(t, func(t *testing.T) { require.NoError(t, runChild(t.Context(), o, os.Stdout)) })
}
