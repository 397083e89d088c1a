package lifecycle

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/null"
)

// preparesNull prepares a claim with the null devices of these GPUs.
func preparesNull(claim string, gpus ...int) Act {
	return Act{Call: "prepare", Claim: claim, Null: gpus}
}

// mig adds MIG devices.
func (a Act) mig(devices ...MIGDevice) Act {
	a.MIGDevices = devices
	return a
}

// familyScenarios prepare devices of a family that the plugin does not contain.
var familyScenarios = []scenario{
	{
		name: "null devices beside whole GPUs and MIG devices", early: true, nullFamily: true, config: migOnly,
		acts: []Act{
			preparesNull("a", 0).mig(large), prepares("b", 1), preparesNull("a", 0).mig(large), unprepares("a"), unprepares("b"),
			preparesNull("c", 0, 1), unprepares("c"),
		},
	},
	{
		name: "a mark cannot be taken back at first", nullFamily: true, config: whole, refuse: map[string]int{"null.Unmark": 1},
		acts: []Act{preparesNull("a", 0), unprepares("a").failing(), unprepares("a")},
	},
	{
		name: "the layout changes beside null devices", nullFamily: true, config: whole,
		acts: []Act{preparesNull("a", 3), configures(migOnly), unprepares("a"), passes},
	},
}

// TestNull_Restart_PublishesTheSame: a restart does not change the layout, and claims get the devices in it.
func TestNull_Restart_PublishesTheSame(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixedNode(0))
	require.NoError(t, err)
	m.setUp(t, &scenario{nullFamily: true, config: wholeAndMIG})
	before, err := m.cluster()
	require.NoError(t, err)
	require.Contains(t, before.Published, place(NodeName+"/"+m.device(0), m.device(0)+"-null"))
	synctest.Test(t, func(t *testing.T) {
		p, err := m.Start(t.Context(), Wiring{})
		require.NoError(t, err)
		require.NoError(t, p.layout.wait(t.Context(), changeSeconds))
		assert.Empty(t, p.layout.Controller.Snapshot().Leaving)
		require.NoError(t, m.act(t.Context(), p, preparesNull("a", 0).mig(large)))
		require.NoError(t, m.CheckInvariants(t.Context(), "a"))
		require.Len(t, m.markedGPUs(), 1)
		require.NoError(t, m.act(t.Context(), p, unprepares("a")))
		require.NoError(t, errors.Join(m.CheckEmpty(t.Context()), p.Close()))
	})
	after, err := m.cluster()
	require.NoError(t, err)
	assert.Empty(t, after.Broken)
	assert.True(t, maps.EqualFunc(before.Published, after.Published, func(a, b *publication) bool { return a.Is == b.Is && !b.Leaving }))
}

// markedGPUs returns the GPUs with a mark of null.Step.
func (m *Machine) markedGPUs() (found []string) {
	gpus := m.Node.GPUs()
	for i := range gpus {
		if m.effects()[null.StepKind](&gpus[i]) {
			found = append(found, gpus[i].UUID)
		}
	}
	return found
}
