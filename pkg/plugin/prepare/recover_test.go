package prepare

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// interrupted leaves in w: an intent, a pending cleanup, a done record without its spec, and one with it.
func interrupted(t *testing.T, w *world) {
	t.Helper()
	w.steps = []string{"mode"}
	p := w.start(t)
	for i, uid := range []string{"intent", "cleanup", "swept", "whole"} {
		p.mustPrepare(wants(uid, device(i)))
	}
	intent := w.record(t, "intent")
	intent.State = checkpoint.Intent
	intent.Steps[0].Made = nil
	require.NoError(t, records{w}.Put(intent))
	w.refuse = always("undo", errStuck)
	require.Error(t, p.Unprepare(t.Context(), "cleanup"))
	w.refuse = nil
	delete(w.specs, "swept")
	w.events()
}

func TestRecover_Leftovers_Finished(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(4)
		interrupted(t, w)
		w.records["damaged"] = nil
		p := w.start(t)
		require.Len(t, p.damaged, 1)
		w.records["damaged too"] = nil
		require.NoError(t, p.Recover(t.Context()))
		assert.ElementsMatch(t, []string{
			"undo mode " + string(uuid(0)), "remove intent", "delete intent",
			"undo mode " + string(uuid(1)), "remove cleanup", "delete cleanup",
			"write swept",
		}, w.events())
		assert.Len(t, p.damaged, 2)
		claims, pending := p.Counts()
		assert.Equal(t, []int{2, 0}, []int{claims, pending})
		require.NoError(t, p.Recover(t.Context()))
		assert.Empty(t, w.events(), "nothing is left to do")
	})
}

func TestRecover_Failures_TriedOnceAndReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(4)
		interrupted(t, w)
		p := w.start(t)
		w.refuse = always("undo", gpu.ErrTimeout)
		w.noSpecs = gpu.ErrDriverNotLoaded
		start := time.Now()
		err := p.Recover(t.Context())
		assert.Zero(t, time.Since(start))
		require.EqualError(t, err, "recovering claim cleanup: undoing mode on GPU "+string(uuid(1))+": no answer within the deadline\n"+
			"recovering claim intent: undoing mode on GPU "+string(uuid(0))+": no answer within the deadline\n"+
			"recovering claim swept: NVIDIA driver is not loaded; check the NVIDIA driver on the node with nvidia-smi")
		assert.Equal(t, checkpoint.Releasing, w.record(t, "intent").State)

		w.refuse = always("all", errDisk)
		require.ErrorIs(t, p.Recover(t.Context()), errDisk)
		w.refuse, w.hidden = nil, "cleanup"
		require.ErrorIs(t, p.Recover(t.Context()), checkpoint.ErrUnreadable)
		assert.Nil(t, w.record(t, "intent"), "the others are recovered")
	})
}

// TestRecover_CallsInFlight_Skipped: a process that is still there finishes its own calls.
func TestRecover_CallsInFlight_Skipped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		w.steps = []string{"mode"}
		old, young := w.start(t), w.start(t)
		slow := make(chan struct{})
		w.during = func(op string) {
			if op == "do mode "+string(uuid(0)) {
				<-slow
			}
		}
		done := make(chan error, 1)
		go func() {
			_, err := old.Prepare(t.Context(), wants("a", device(0)))
			done <- err
		}()
		time.Sleep(time.Second)
		require.Equal(t, checkpoint.Intent, w.record(t, "a").State)
		time.AfterFunc(time.Second, func() { close(slow) })
		require.NoError(t, young.Recover(t.Context()))
		require.NoError(t, <-done)
		assert.Equal(t, checkpoint.Done, w.record(t, "a").State)
		assert.NotContains(t, w.events(), "undo mode "+string(uuid(0)))

		// A claim that is released after Recover listed it gets no spec again.
		delete(w.specs, "a")
		young.taking = func(lock string) {
			if lock == "claim a" {
				assert.NoError(t, old.Unprepare(t.Context(), "a"))
			}
		}
		require.NoError(t, young.Recover(t.Context()))
		w.clean(t)
	})
}
