package mig

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// remade removes the present instance and lets an administrator make the same profile at the same placement. The new one gets the same id
// and UUID.
func remade(t *testing.T, w *world) gpu.Instance {
	t.Helper()
	first := w.there()[0]
	w.removed(first)
	again := w.administrator(threeSlices, high, true)
	require.Equal(t, first, again, "nothing distinguishes the two")
	w.changes = nil
	return again
}

// TestUndo_DriverLoadedAgain_InstancesKept: no instance outlives a load of the driver, so an instance with the id and UUID of ours is an
// administrator's. If the loads are not known, only the record can decide.
func TestUndo_DriverLoadedAgain_InstancesKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		makes, undoes string
		gone          bool
	}{
		"another load":        {"1", "2", false},
		"the same load":       {"1", "1", true},
		"no load was known":   {"", "2", true},
		"the load is unknown": {"1", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := partitioned(t)
			w.load = c.makes
			s := w.made(threeSlices, high)
			theirs := remade(t, w)
			w.load = c.undoes
			owned := Owned([]*checkpoint.Record{{BootID: "now", State: checkpoint.Done, Steps: []checkpoint.Step{s}}}, "now", w.load)
			assert.Equal(t, c.gone, owned(w.id, &theirs))
			err := w.step().Verify(t.Context(), s)
			if !c.gone {
				require.ErrorIs(t, err, gpu.ErrNotFound)
				require.NoError(t, w.step().Undo(t.Context(), s))
				w.untouched(theirs)
				return
			}
			require.NoError(t, err)
			require.NoError(t, w.step().Undo(t.Context(), s))
			assert.Empty(t, w.there())
		})
	}
}

// TestUndo_NoComputeInstance_UndoneOnceBegun: as long as the record answers, ours contains its compute instance. After that an earlier
// try may have removed it.
func TestUndo_NoComputeInstance_UndoneOnceBegun(t *testing.T) {
	t.Parallel()
	for _, state := range []checkpoint.State{checkpoint.Done, checkpoint.Releasing} {
		w := partitioned(t)
		s := w.made(threeSlices, high)
		i := w.there()[0]
		require.NoError(t, w.MIGDriver.DestroyComputeInstance(t.Context(), w.id, i.ID, i.Compute[0].ID))
		bare := w.there()[0]
		s.Whole = state == checkpoint.Done
		owned := Owned([]*checkpoint.Record{{BootID: "now", State: state, Steps: []checkpoint.Step{s}}}, "now", w.load)
		assert.Equal(t, !s.Whole, owned(w.id, &bare), state)
		require.NoError(t, w.step().Undo(t.Context(), s))
		if s.Whole {
			w.untouched(bare)
		} else {
			assert.Empty(t, w.there())
		}
	}
}

// TestUndo_ReplacedAtOnce_ReportedGone: an instance that was made between the removal and its check contains a compute instance, and the
// step's is without one by then.
func TestUndo_ReplacedAtOnce_ReportedGone(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	s := w.made(threeSlices, high)
	w.destroyed = func() { w.administrator(threeSlices, high, true) }
	require.NoError(t, w.step().Undo(t.Context(), s))
	assert.Len(t, w.there(), 1)
}

// TestVerify_OlderRecord_ComputeSlicesCompared: earlier versions have made compute instances that may not fill their GPU instance.
func TestVerify_OlderRecord_ComputeSlicesCompared(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	const doubleMemory, narrow = 15, 0
	s := w.deviceStep(doubleMemory, gpu.Placement{Start: 4, Size: 2})
	i := w.compute(w.administrator(doubleMemory, gpu.Placement{Start: 4, Size: 2}, false).ID, narrow)
	require.True(t, i.Compute[0].Part)
	id := gpu.MIGIdentity{GPUInstance: i.ID, ComputeInstance: i.Compute[0].ID, UUID: i.Compute[0].UUID}
	s.Made, _ = json.Marshal(id)
	require.NoError(t, w.step().Verify(t.Context(), s))
	s.Made = encode(made{MIGIdentity: id, Fills: true})
	require.ErrorIs(t, w.step().Verify(t.Context(), s), gpu.ErrNotFound, "it is smaller than what this version has made")
	s.Made, _ = json.Marshal(id)
	require.NoError(t, w.step().Undo(t.Context(), s))
	assert.Empty(t, w.there())
}

// TestDo_DoubleMemory_Fills: memory slices do not show which compute instance has all multiprocessors.
func TestDo_DoubleMemory_Fills(t *testing.T) {
	t.Parallel()
	w := partitioned(t)
	s := w.made(15, gpu.Placement{Start: 4, Size: 2})
	assert.False(t, w.there()[0].Compute[0].Part)
	assert.Contains(t, string(s.Made), `"load":"1","fills":true`)
}
