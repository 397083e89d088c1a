package mig

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// sampled opens another session that samples the MIG device, as prism-exporter does. It returns functions that free the sample and end
// the session.
func (w *world) sampled(device gpu.MIGUUID) (free, end func()) {
	w.t.Helper()
	session, err := w.node.Open("", []int{w.node.Identities()[0].Minor})
	require.NoError(w.t, err)
	handle, err := session.ByUUID(string(device))
	require.NoError(w.t, err)
	sample, err := session.AllocateSample()
	require.NoError(w.t, err)
	require.NoError(w.t, session.Sample(handle, sample))
	return func() { require.NoError(w.t, session.FreeSample(sample)) }, session.Close
}

// destroys counts the attempts to destroy the GPU instance.
func (w *world) destroys() int {
	return len(slices.DeleteFunc(slices.Clone(w.changes), func(change string) bool { return change != "destroy" }))
}

// TestUndo_SampleFreedMeanwhile_DestroyedAMillisecondLater: a pod that ends does not wait for the retry of the whole call.
func TestUndo_SampleFreedMeanwhile_DestroyedAMillisecondLater(t *testing.T) {
	for name, freed := range map[string]func(free, end func()) func(){
		string(model.HoldUntilFree):     func(free, _ func()) func() { return free },
		string(model.HoldUntilShutdown): func(free, end func()) func() { return func() { free(); end() } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := partitioned(t)
				require.NoError(t, w.node.SetSampleHold(model.SampleHold(name)))
				s := w.made(oneSlice, last)
				free := freed(w.sampled(w.there()[0].Compute[0].UUID))
				began := time.Now()
				time.AfterFunc(4500*time.Microsecond, free)
				require.NoError(t, w.step().Undo(t.Context(), s))
				assert.Equal(t, 5*time.Millisecond, time.Since(began))
				assert.Equal(t, 6, w.destroys(), "once a millisecond")
				assert.Empty(t, w.there())
			})
		})
	}
}

// TestUndo_SampleHeldLonger_InUseAfter50ms: a longer hold is left to the retry of the whole call, which reports it.
func TestUndo_SampleHeldLonger_InUseAfter50ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := partitioned(t)
		s := w.made(oneSlice, last)
		free, _ := w.sampled(w.there()[0].Compute[0].UUID)
		began := time.Now()
		require.ErrorIs(t, w.step().Undo(t.Context(), s), gpu.ErrInUse)
		assert.Equal(t, 50*time.Millisecond, time.Since(began))
		assert.Equal(t, 51, w.destroys())
		free()
		w.changes = nil
		require.NoError(t, w.step().Undo(t.Context(), s))
		assert.Equal(t, []string{"destroy"}, w.changes)
		assert.Empty(t, w.there())
	})
}

// TestUndo_DeviceInUse_OneLimitForBothInstances: after a process that exits late, only the rest of the time remains for the GPU instance.
func TestUndo_DeviceInUse_OneLimitForBothInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := partitioned(t)
		s := w.made(oneSlice, last)
		device := w.there()[0].Compute[0].UUID
		_, end := w.sampled(device)
		exited, err := w.node.Hold(string(device))
		require.NoError(t, err)
		time.AfterFunc(30500*time.Microsecond, exited)
		began := time.Now()
		require.ErrorIs(t, w.step().Undo(t.Context(), s), gpu.ErrInUse)
		assert.Equal(t, 50*time.Millisecond, time.Since(began))
		assert.Equal(t, 20, w.destroys())
		end()
	})
}

// TestUndo_InUseAndCallEnds_ReturnsAtOnce: the error stays the cause.
func TestUndo_InUseAndCallEnds_ReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := partitioned(t)
		s := w.made(oneSlice, last)
		_, end := w.sampled(w.there()[0].Compute[0].UUID)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		time.AfterFunc(2500*time.Microsecond, cancel)
		require.ErrorIs(t, w.step().Undo(ctx, s), gpu.ErrInUse)
		assert.Equal(t, 2500*time.Microsecond, time.Since(began))
		end()
	})
}
