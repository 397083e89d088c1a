package lifecycle

import (
	"encoding/json"
	"os"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// layoutConfig returns a configuration with these modes for the first GPU with MIG; the others are whole.
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

// configures changes the node's configuration, and waits.
func configures(config string) Act { return Act{Call: "configure", Config: config} }

// allocates allocates a GPU to a claim that is not prepared yet.
func allocates(claim string, gpus ...int) Act { return Act{Call: "allocate", Claim: claim, GPUs: gpus} }

// deletes deletes a claim in the API server before the kubelet unprepares it.
func deletes(claim string) Act { return Act{Call: "delete", Claim: claim} }

// passes waits.
var passes = Act{Call: "wait"}

// stale: the claim is allocated a device that the node does not advertise.
func (a Act) stale() Act {
	a.Stale = true
	return a
}

// layoutScenarios change the layout of a GPU by the node's configuration.
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

// inMachineTime runs a test with fake time if the machine uses fake time.
func (m *Machine) inMachineTime(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	if !m.fakeTime {
		run(t)
		return
	}
	synctest.Test(t, func(t *testing.T) {
		m.health.resume(m.Node)
		defer m.health.pause(m.Node)
		run(t)
	})
}

// The test is the main function of child processes with fake time.
func TestChild_LayoutScenario_FakeTime(t *testing.T) {
	text := os.Getenv(childEnv)
	if text == "" {
		t.Skip("runs in a child process only")
	}
	var o childSpec
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	synctest.Test(t, func(t *testing.T) { require.NoError(t, runChild(t.Context(), o, os.Stdout)) })
}
