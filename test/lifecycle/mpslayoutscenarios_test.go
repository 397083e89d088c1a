package lifecycle

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// sharedConfig returns a configuration with these modes for the first GPU, which does not support MIG; the others are whole.
func sharedConfig(modes string) string {
	return "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: [{select: {indices: [0]}, " + modes + "}]\n"
}

var (
	unshared       = sharedConfig("modes: [whole]")
	threeShares    = sharedConfig("modes: [mps], mps: {replicas: 3, memory: {default: 8Gi}}")
	twoLargeShares = sharedConfig("modes: [mps], mps: {replicas: 2, memory: {default: 16Gi}}")
	wholeAndShares = sharedConfig("modes: [whole, mps], mps: {replicas: 3, memory: {default: 8Gi}}")
	sharesInTime   = sharedConfig("modes: [timeslice], timeSlice: {replicas: 3}")
)

// mpsLayoutScenarios change the layout of a GPU to MPS shares, from them, and to shares of other sizes.
var mpsLayoutScenarios = []scenario{
	{
		name: "a GPU changes to MPS shares", long: true, config: unshared,
		acts: []Act{configures(threeShares), prepares("b", 0).stale().failing(), unprepares("b"), sharesMPS("a", 0), connects("a"), unprepares("a")},
	},
	{
		name: "a GPU changes to MPS shares while it is prepared", config: unshared,
		acts: []Act{
			prepares("a", 0), configures(threeShares), sharesMPS("b", 0).stale().failing(), unprepares("a"), passes, sharesMPS("c", 0), connects("c"), unprepares("c"),
			unprepares("b"),
		},
	},
	{
		name: "a GPU changes to whole while it has two MPS shares", config: threeShares, before: []Act{sharesMPS("a", 0), sharesMPS("b", 0)},
		acts: []Act{
			connects("a"), configures(unshared), connects("b"), sharesMPS("c", 0).failing(), unprepares("a"), passes,
			prepares("d", 0).stale().failing(), unprepares("d"), connects("b"), unprepares("b"), passes, prepares("e", 0), unprepares("e"), unprepares("c"),
		},
	},
	{
		name: "a GPU changes to whole while a deleted claim has an MPS share", long: true, config: threeShares,
		acts: []Act{sharesMPS("a", 0), deletes("a"), configures(unshared), unprepares("a"), passes, prepares("b", 0), unprepares("b")},
	},
	{
		name: "a GPU changes to whole while an MPS share is allocated", long: true, config: threeShares,
		acts: []Act{allocatesMPS("a", 0), configures(unshared), sharesMPS("a", 0), connects("a"), unprepares("a"), passes},
	},
	{
		name: "a GPU changes the sizes of its MPS shares while it has one", config: threeShares, before: []Act{sharesMPS("a", 0)},
		acts: []Act{
			connects("a"), configures(twoLargeShares), connects("a"), unprepares("a"), passes, sharesMPS("b", 0), connects("b"), unprepares("b"),
		},
	},
	{
		name: "a GPU gets MPS shares beside whole and loses them", long: true, config: unshared,
		acts: []Act{configures(wholeAndShares), sharesMPS("a", 0), connects("a"), configures(unshared), unprepares("a"), passes},
	},
	{
		name: "a GPU changes from MPS shares to time-sliced shares while it has one", long: true, config: threeShares,
		acts: []Act{sharesMPS("a", 0), connects("a"), configures(sharesInTime), unprepares("a"), passes, shares("b", 0), unprepares("b")},
	},
	{
		name: "a daemon dies while its GPU is to change to whole", long: true, config: threeShares,
		acts: []Act{sharesMPS("a", 0), configures(unshared), daemonsDie, reconcilesMPS, connects("a"), unprepares("a"), passes},
	},
	{
		name: "a GPU changes to whole after a reboot with an MPS share", long: true, config: threeShares, before: []Act{sharesMPS("a", 0)}, then: reboots,
		acts: []Act{recovers, configures(unshared), reconcilesMPS, unprepares("a"), passes},
	},
}

// allocatesMPS allocates MPS shares to a claim that is not prepared yet.
func allocatesMPS(claim string, gpus ...int) Act {
	return Act{Call: "allocate", Claim: claim, MPS: gpus}
}

// The old process of a rolling update prepares shares of the layout that it knows, while the new one, which leads, reads another layout.
// The GPU keeps its shares until the last of them ends, runs one daemon until then, and none afterwards.
func TestMPS_TwoProcessesNewLayout_BusyGPUKeepsLayout(t *testing.T) {
	t.Parallel()
	m := newMPSMachine(t)
	m.setUp(t, &scenario{config: threeShares})
	m.inMachineTime(t, func(t *testing.T) {
		var processes []*Process
		for range 2 {
			p, err := m.Start(t.Context(), Wiring{})
			require.NoError(t, err)
			processes = append(processes, p)
		}
		leads := processes[1]
		for round, next := range []string{unshared, threeShares, twoLargeShares, threeShares, sharesInTime, threeShares} {
			claims := []string{fmt.Sprintf("uid-%d-0", round), fmt.Sprintf("uid-%d-1", round)}
			if round%2 == 1 { // no share can be allocated in the layout before: the change is not blocked
				claims = nil
			}
			m.changesWhileShared(t, processes, next, claims)
			require.NoError(t, leads.layout.wait(t.Context(), releaseSeconds))
			require.NoError(t, m.CheckEmpty(t.Context()))
		}
		for _, p := range processes {
			require.NoError(t, p.Close())
		}
	})
}

// changesWhileShared configures another layout while both processes prepare shares; all are unprepared by the process that did not prepare
// them.
func (m *Machine) changesWhileShared(t *testing.T, processes []*Process, next string, claims []string) {
	t.Helper()
	for i, uid := range claims {
		require.NoError(t, m.act(t.Context(), processes[i%2], allocatesMPS(uid, 0)))
	}
	var calls sync.WaitGroup
	calls.Go(func() {
		if err := m.act(t.Context(), processes[1], configures(next)); err != nil {
			t.Error(err)
		}
	})
	for i, uid := range claims {
		calls.Go(func() {
			for _, act := range []Act{sharesMPS(uid, 0), connects(uid)} {
				if err := m.act(t.Context(), processes[i%2], act); err != nil {
					t.Errorf("%s %s: %v", act.Call, uid, err)
				}
			}
		})
	}
	calls.Wait()
	require.NoError(t, m.CheckInvariants(t.Context(), claims...))
	for i, uid := range claims {
		require.NoError(t, m.act(t.Context(), processes[(i+1)%2], unprepares(uid)))
		require.NoError(t, m.CheckInvariants(t.Context(), claims[i+1:]...))
	}
}
