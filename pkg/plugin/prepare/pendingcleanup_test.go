package prepare

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

var errStuck = errors.New("it is stuck")

// prepared is a process that has prepared a claim with effects on the first GPU, whose effects cannot be undone.
func prepared(t *testing.T, w *world) *process {
	t.Helper()
	w.steps = []string{"mode", "partition"}
	p := w.start(t)
	p.mustPrepare(wants("a", device(0)))
	w.events()
	w.refuse = always("undo mode", errStuck)
	return p
}

func TestUnprepare_StuckForLong_PodReleased(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p := prepared(t, w)
		start := time.Now()
		err := p.Unprepare(t.Context(), "a")
		require.EqualError(t, err, "undoing mode on GPU "+string(uuid(0))+": it is stuck")
		assert.Equal(t, []string{"put releasing a", "undo partition " + string(uuid(0)), "put releasing a"}, w.events())
		r := w.record(t, "a")
		assert.Equal(t, checkpoint.Releasing, r.State)
		assert.True(t, r.PendingCleanup.Since.Equal(start))
		assert.Equal(t, "undoing mode on GPU "+string(uuid(0))+": it is stuck", r.PendingCleanup.Cause)
		assert.Equal(t, "it is stuck", r.Steps[0].Undo)
		claims, pending := p.Counts()
		assert.Equal(t, []int{1, 1}, []int{claims, pending})

		time.Sleep(deferCleanupAfter - time.Second)
		require.Error(t, p.Unprepare(t.Context(), "a"), "the pod is kept")
		assert.Empty(t, w.events(), "a pending cleanup that is known is not written again, and what was undone is not undone again")
		time.Sleep(time.Second)
		require.NoError(t, w.start(t).Unprepare(t.Context(), "a"), "the pod may go, whichever process is asked")
		require.NotNil(t, w.record(t, "a"), "the cleanup stays")

		w.refuse = nil
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		w.clean(t)
	})
}

func TestPendingCleanups_Changed_Reported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p := prepared(t, w)
		p.mustPrepare(wants("b", device(1)))
		assert.Empty(t, p.pendingGPUs, "a finished undo leaves nothing pending")
		require.Error(t, p.Unprepare(t.Context(), "a"))
		require.Error(t, p.Unprepare(t.Context(), "a"))
		assert.Equal(t, [][]gpu.UUID{{uuid(0)}}, p.pendingGPUs, "once")
		assert.Equal(t, [][]gpu.UUID{{uuid(0)}}, w.start(t).pendingGPUs, "a new process reports it again")
		w.refuse = nil
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		assert.Equal(t, [][]gpu.UUID{{uuid(0)}, nil}, p.pendingGPUs, "and when it is finished")
	})
}

func TestUnprepare_TransientError_Retried(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := prepared(t, w)
		w.refuse = times(3, "undo partition", gpu.ErrInUse)
		start := time.Now()
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		assert.Equal(t, firstWait*(1+2+4), time.Since(start))
		w.clean(t)

		p = prepared(t, w)
		w.refuse = always("undo partition", gpu.ErrInUse)
		start = time.Now()
		require.ErrorIs(t, p.Unprepare(t.Context(), "a"), gpu.ErrInUse)
		assert.Equal(t, retryBudget, time.Since(start))
	})
}

// TestUnprepare_ClockSetBack_PodReleased: the cleanup's date lies in the future then.
func TestUnprepare_ClockSetBack_PodReleased(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := prepared(t, w)
		require.Error(t, p.Unprepare(t.Context(), "a"))
		r := w.record(t, "a")
		r.PendingCleanup.Since = time.Now().Add(365 * 24 * time.Hour)
		require.NoError(t, records{w}.Put(r))
		require.Error(t, p.Unprepare(t.Context(), "a"))
		time.Sleep(deferCleanupAfter)
		require.NoError(t, p.Unprepare(t.Context(), "a"))
	})
}

func TestPrepare_PendingCleanup_FinishedFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p := prepared(t, w)
		require.Error(t, p.Unprepare(t.Context(), "a"))
		w.events()

		p.mustPrepare(wants("other", device(1)), "another GPU is not concerned")
		start := time.Now()
		_, err := p.Prepare(t.Context(), wants("b", device(0)))
		require.EqualError(t, err, `request "r0", device gpu-00000000: cleanup of GPU `+string(uuid(0))+` after an earlier claim is still pending; `+
			`the log of the kubelet plugin on the node says why; check the GPU there with nvidia-smi, and reset it if this stays (will be retried)`)
		assert.Equal(t, []any{"heldBy", "default/claim-a", "heldByUID", "a", "cleanup", "undoing mode on GPU " + string(uuid(0)) + ": it is stuck"}, LogValues(err))
		assert.Equal(t, retryBudget, time.Since(start))
		assert.Nil(t, w.record(t, "b"))

		w.refuse = nil
		w.events()
		p.mustPrepare(wants("b", device(0)))
		events := w.events()
		assert.Equal(t, []string{
			"undo mode " + string(uuid(0)), "remove a", "delete a", "put intent b",
		}, events[:4])
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		require.NoError(t, p.Unprepare(t.Context(), "b"))
		require.NoError(t, p.Unprepare(t.Context(), "other"))
		w.clean(t)
	})
}

// TestPrepare_CleanupOfAnotherProcess_Finished is found when the GPU is needed, though this process never saw it.
func TestPrepare_CleanupOfAnotherProcess_Finished(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		young := w.start(t)
		old := prepared(t, w)
		require.Error(t, old.Unprepare(t.Context(), "a"))
		w.refuse = nil
		start := time.Now()
		young.mustPrepare(wants("b", device(0)))
		assert.Zero(t, time.Since(start), "the cleanup is finished at once")
		assert.Nil(t, w.record(t, "a"))
	})
}

// TestPrepare_CleanupOnTwoGPUs_Finished: a claim that needs one of them finishes it, in either order of the GPUs. A GPU without remaining
// effects has none pending.
func TestPrepare_CleanupOnTwoGPUs_Finished(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for needed := range 2 {
			w := newWorld(2)
			w.steps = []string{"mode"}
			p := w.start(t)
			p.mustPrepare(wants("a", device(1), device(0)))
			w.refuse = always("undo mode", errStuck)
			require.Error(t, p.Unprepare(t.Context(), "a"))
			assert.Equal(t, []gpu.UUID{uuid(0), uuid(1)}, p.pendingGPUs[len(p.pendingGPUs)-1])
			w.refuse = always("undo mode "+string(uuid(1)), errStuck)
			_, err := p.Prepare(t.Context(), wants("b", device(needed)))
			assert.Equal(t, needed == 1, err != nil, "%v", err)
			assert.Equal(t, []gpu.UUID{uuid(1)}, p.pendingGPUs[len(p.pendingGPUs)-1])
			w.refuse = nil
			p.mustPrepare(wants("c", device(1)))
			require.NoError(t, p.Unprepare(t.Context(), "b"))
			require.NoError(t, p.Unprepare(t.Context(), "c"))
			w.clean(t)
		}
	})
}

// TestPrepare_CleanupRetriedByTwo_UndoneOnce: its own claim waits for the GPU while another retries the cleanup, and must not undo effects
// that this claim made since.
func TestPrepare_CleanupRetriedByTwo_UndoneOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := prepared(t, w)
		require.Error(t, p.Unprepare(t.Context(), "a"))
		w.refuse = nil
		other := w.start(t)
		other.taking = func(lock string) {
			if lock == string(uuid(0)) { // it has read the record, and comes late
				_, err := p.Prepare(t.Context(), wants("b", device(0)))
				assert.NoError(t, err)
			}
		}
		require.NoError(t, other.Unprepare(t.Context(), "a"))
		assert.Equal(t, map[string]string{"mode": `{"for":"b"}`, "partition": `{"for":"b"}`}, w.effects[uuid(0)])
		require.NoError(t, p.Unprepare(t.Context(), "b"))
		w.clean(t)
	})
}

// TestPrepare_CleanupChanged_NotUndone: its claim was allocated again and failed again, elsewhere, while the retry waited.
func TestPrepare_CleanupChanged_NotUndone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p := prepared(t, w)
		require.Error(t, p.Unprepare(t.Context(), "a"))
		w.refuse = nil
		payer, once := w.start(t), true
		payer.taking = func(lock string) {
			if lock == string(uuid(0)) && once {
				once = false
				return
			}
			if r := w.record(t, "a"); lock == string(uuid(0)) && r != nil && r.Results[0].GPUUUID == uuid(0) {
				_, err := p.Prepare(t.Context(), wants("a", device(1)))
				assert.NoError(t, err)
				w.refuse = always("undo mode "+string(uuid(1)), errStuck)
				assert.Error(t, p.Unprepare(t.Context(), "a"))
				w.during = func(op string) {
					assert.NotEqual(t, "undo mode "+string(uuid(1)), op, "under the lock of another GPU")
				}
			}
		}
		payer.mustPrepare(wants("b", device(0)))
		assert.Equal(t, map[string]string{"mode": `{"for":"b"}`, "partition": `{"for":"b"}`}, w.effects[uuid(0)])
	})
}

// TestPrepare_RetryOfPendingClaim_CleanupKept: a cause that goes away is retried in the call, also when undoing failed in between.
func TestPrepare_RetryOfPendingClaim_CleanupKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		w.steps = []string{"mode", "partition"}
		p := w.start(t)
		w.refuse = either(times(1, "do partition", gpu.ErrTimeout), times(2, "undo mode", gpu.ErrTimeout))
		p.mustPrepare(wants("a", device(0)))
		events := w.events()
		undone, again := slices.Index(events, "undo mode "+string(uuid(0))), lastIndex(events, "put intent a")
		assert.Less(t, undone, again, "the effect of the first try was undone before the second: %v", events)
		assert.GreaterOrEqual(t, undone, 0)
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		w.clean(t)
	})
}

func lastIndex(list []string, what string) int {
	last := -1
	for i, s := range list {
		if s == what {
			last = i
		}
	}
	return last
}

func TestPrepare_UndoFails_CleanupPending(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		w.steps = []string{"mode", "partition"}
		p := w.start(t)
		w.refuse = either(always("do partition", gpu.ErrPermission), always("undo mode", errStuck))
		_, err := p.Prepare(t.Context(), wants("a", device(0)))
		require.EqualError(t, err, "making partition on GPU "+string(uuid(0))+": permission denied; "+
			"undoing the effects: undoing mode on GPU "+string(uuid(0))+": it is stuck")
		r := w.record(t, "a")
		assert.Equal(t, checkpoint.Releasing, r.State)
		assert.JSONEq(t, `{"for":"a"}`, string(r.Steps[0].Made), "what undoing needs is kept")

		_, err = p.Prepare(t.Context(), wants("a", device(0)))
		require.ErrorContains(t, err, "undoing an earlier try: undoing mode")
		w.refuse = nil
		p.mustPrepare(wants("a", device(0)))
	})
}

// TestUnprepare_Begun_RecordDoesNotAnswer, else a crash leaves a record that promises effects that are half undone.
func TestUnprepare_Begun_RecordDoesNotAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		w.steps = []string{"mode"}
		p := w.start(t)
		w.during = func(op string) {
			if op == "undo mode "+string(uuid(0)) {
				assert.NotEqual(t, checkpoint.Done, w.record(t, "a").State)
			}
		}
		w.refuse = always("write", errDisk) // the done record is there by then
		_, err := p.Prepare(t.Context(), wants("a", device(0)))
		require.ErrorIs(t, err, errDisk)
		w.clean(t)

		w.refuse = nil
		p.mustPrepare(wants("a", device(0)))
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		w.clean(t)
	})
}

// TestUnprepare_SpecStays_CleanupPending: a directory that cannot be written to holds no pod for ever.
func TestUnprepare_SpecStays_CleanupPending(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := w.start(t)
		p.mustPrepare(wants("a", device(0)))
		w.refuse = always("remove", errDisk)
		require.ErrorIs(t, p.Unprepare(t.Context(), "a"), errDisk)
		time.Sleep(deferCleanupAfter)
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		w.refuse = nil
		p.mustPrepare(wants("b", device(0)))
		assert.Empty(t, w.specs["a"])
	})
}

// TestUnprepare_AdminAccessFails_GPUNotBlocked: it is undone under the claim's lock, which a claim for the GPU does not have.
func TestUnprepare_AdminAccessFails_GPUNotBlocked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := w.start(t)
		p.mustPrepare(wants("watching", monitor))
		w.refuse = always("remove watching", errDisk)
		require.ErrorIs(t, p.Unprepare(t.Context(), "watching"), errDisk)
		assert.Equal(t, checkpoint.Releasing, w.record(t, "watching").State)
		_, pending := p.Counts()
		assert.Equal(t, 1, pending)
		assert.Empty(t, p.pendingGPUs, "no cleanup is pending on the GPU")

		p.mustPrepare(wants("b", device(0)))
		w.refuse = nil
		require.NoError(t, p.Unprepare(t.Context(), "b"))
		p.mustPrepare(wants("c", device(0)))
		assert.NotNil(t, w.records["watching"], "a claim for the GPU does not have the lock of that claim")
		require.NoError(t, p.Recover(t.Context()))
		assert.Nil(t, w.records["watching"], "recovery has it")
	})
}

func TestPendingCleanup_Damaged_Reported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := prepared(t, w)
		require.Error(t, p.Unprepare(t.Context(), "a"))
		w.refuse = nil
		w.records["a"] = nil
		delete(w.effects, uuid(0))
		p.mustPrepare(wants("b", device(0)))
		assert.Len(t, p.damaged, 1)
	})
}
