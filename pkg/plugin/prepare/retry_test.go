package prepare

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestPrepare_GPUOwned_RefusedAtTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p := w.start(t)
		p.mustPrepare(wants("a", device(0), device(1)))
		start := time.Now()
		_, err := p.Prepare(t.Context(), wants("b", device(1)))
		require.EqualError(t, err, `request "r0", device gpu-00000001: GPU `+string(uuid(1))+` is still held by another claim; `+
			`if the pod of that claim was deleted by force, its containers may still be exiting; the log of the kubelet plugin on the node names the `+
			`claim (will be retried)`)
		heldBy(t, err, "a")
		assert.Equal(t, retryBudget, time.Since(start))
		assert.Equal(t, []string{err.Error()}, p.retrying)
		assert.Nil(t, w.record(t, "b"))
	})
}

// TestUnprepare_GPUReleased_WaitingClaimWoken: at once, and not at the next check.
func TestUnprepare_GPUReleased_WaitingClaimWoken(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := w.start(t)
		p.mustPrepare(wants("a", device(0)))
		const later = 17*time.Second + time.Millisecond
		time.AfterFunc(later, func() { assert.NoError(t, p.Unprepare(t.Context(), "a")) })
		start := time.Now()
		p.mustPrepare(wants("b", device(0)))
		assert.Equal(t, later, time.Since(start))
	})
}

// TestPrepare_ReleasedBeforeWait_NotMissed: the GPU is released between the check that finds it held and the wait.
func TestPrepare_ReleasedBeforeWait_NotMissed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := w.start(t)
		_, err := p.Prepare(t.Context(), wants("a", device(0)))
		require.NoError(t, err)
		options := &p.Transaction.options
		retrying := options.Retrying
		options.Retrying = nil
		// The wait is reported after the check and before the wait.
		options.Retrying = func(rc *claimObject, cause error) {
			retrying(rc, cause)
			assert.NoError(t, p.Unprepare(t.Context(), "a"))
		}
		start := time.Now()
		p.mustPrepare(wants("b", device(0)))
		assert.Zero(t, time.Since(start))
	})
}

// TestPrepare_Waiting_RecordsNotReadAgain: two processes that wait for one GPU count each other's checks as changes, which must not
// make them check again at once.
func TestPrepare_Waiting_RecordsNotReadAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		w.start(t).mustPrepare(wants("a", device(0)))
		done := make(chan error, 2)
		for _, uid := range []string{"b", "c"} {
			p := w.start(t)
			go func() {
				_, err := p.Prepare(t.Context(), wants(uid, device(0)))
				done <- err
			}()
		}
		for range 2 {
			require.Error(t, <-done)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Less(t, w.holder[uuid(0)], 2*(4+int(retryBudget/longWait)))
	})
}

func TestPrepare_Waiting_NoGPULocked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p := w.start(t)
		p.mustPrepare(wants("a", device(0)))
		done := make(chan error, 1)
		go func() {
			_, err := p.Prepare(t.Context(), wants("b", device(0), device(1)))
			done <- err
		}()
		time.Sleep(time.Second)
		start := time.Now()
		p.mustPrepare(wants("c", device(1)))
		assert.Zero(t, time.Since(start))
		require.Error(t, <-done)
	})
}

func TestPrepare_EffectHangs_OtherGPUsNotDelayed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		w.steps = []string{"mode"}
		p := w.start(t)
		hang := make(chan struct{})
		w.during = func(op string) {
			if op == "do mode "+string(uuid(0)) {
				<-hang
			}
		}
		done := make(chan error, 1)
		go func() {
			_, err := p.Prepare(t.Context(), wants("a", device(0)))
			done <- err
		}()
		time.Sleep(time.Second)
		start := time.Now()
		p.mustPrepare(wants("b", device(1)))
		assert.Zero(t, time.Since(start), "another GPU")

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := p.Prepare(ctx, wants("c", device(0)))
		require.ErrorContains(t, err, "waiting for the lock of "+string(uuid(0)))
		require.NoError(t, ctx.Err(), "there is time to say so")
		_, err = p.Prepare(ctx, wants("a", device(0)))
		require.ErrorContains(t, err, "waiting for the lock of claim a", "a second call for the claim joins the first")
		close(hang)
		require.NoError(t, <-done)
	})
}

func TestPrepare_AdminAccess_BlocksNoClaim(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := w.start(t)
		for _, rc := range []*claimObject{
			wants("see", monitor), wants("use", device(0)), wants("debug", device(0)+"!"), wants("see too", monitor),
		} {
			start := time.Now()
			p.mustPrepare(rc)
			assert.Zero(t, time.Since(start))
		}
		claims, pending := p.Counts()
		assert.Equal(t, []int{4, 0}, []int{claims, pending})
		_, err := p.Prepare(t.Context(), wants("second", device(0)))
		heldBy(t, err, "use")

		// One claim that uses a GPU and monitors it owns it, in whatever order its requests are.
		require.NoError(t, p.Unprepare(t.Context(), "use"))
		p.mustPrepare(wants("both", device(0), device(0)+"!"))
		_, err = p.Prepare(t.Context(), wants("second", device(0)))
		heldBy(t, err, "both")
	})
}

func TestPrepare_TwoProcesses_OwnersShared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		old, young := w.start(t), w.start(t)
		old.mustPrepare(wants("a", device(0)))
		_, err := young.Prepare(t.Context(), wants("b", device(0)))
		heldBy(t, err, "a")
		require.NoError(t, young.Unprepare(t.Context(), "a"))
		young.mustPrepare(wants("b", device(0)))
		_, err = old.Prepare(t.Context(), wants("c", device(0)))
		heldBy(t, err, "b")
		require.NoError(t, old.Unprepare(t.Context(), "b"))
		w.clean(t)
	})
}

// TestUnprepare_ForeignChange_RecordsNotRead: the release of a claim on a GPU does not read the records that another process wrote for that
// GPU.
func TestUnprepare_ForeignChange_RecordsNotRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		old, young := w.start(t), w.start(t)
		old.mustPrepare(wants("see", device(0)+"!"))
		young.mustPrepare(wants("a", device(0)))
		require.NoError(t, old.Unprepare(t.Context(), "see"))
		_, err := old.Prepare(t.Context(), wants("b", device(0)))
		heldBy(t, err, "a")
	})
}

func TestLock_RecordsUnreadable_StillStale(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		old, young := w.start(t), w.start(t)
		young.mustPrepare(wants("a", device(0)))
		w.refuse = times(1, "all", errDisk)
		_, err := old.Prepare(t.Context(), wants("b", device(0)))
		require.ErrorIs(t, err, errDisk)
		_, err = old.Prepare(t.Context(), wants("b", device(0)))
		heldBy(t, err, "a")
	})
}

// TestPrepare_UnreadableRecord_GPUNotPrepared: the disk does not give a record now, which is no reason to give its GPU away, and none
// to keep pods.
func TestPrepare_UnreadableRecord_GPUNotPrepared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p := w.start(t)
		for i, uid := range []string{"a", "b"} {
			p.mustPrepare(wants(uid, device(i)))
		}
		w.hidden = "a"
		p = w.start(t)
		require.Len(t, p.damaged, 1)
		_, err := p.Prepare(t.Context(), wants("c", device(0)))
		require.ErrorIs(t, err, checkpoint.ErrUnreadable)
		require.EqualError(t, err, "the claims that hold the GPU cannot be read now; the log of the kubelet plugin on the node contains the reason")
		assert.Contains(t, LogValues(err)[1], "reading the record of claim a")
		p.mustPrepare(wants("b", device(1)))
		require.NoError(t, p.Unprepare(t.Context(), "b"))
		w.hidden = ""
		_, err = p.Prepare(t.Context(), wants("c", device(0)))
		heldBy(t, err, "a")
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		w.clean(t)
	})
}

func TestPrepare_ReleasedByAnotherProcess_Found(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		old, young := w.start(t), w.start(t)
		old.mustPrepare(wants("a", device(0)))
		time.AfterFunc(10*time.Second, func() { assert.NoError(t, young.Unprepare(t.Context(), "a")) })
		start := time.Now()
		old.mustPrepare(wants("b", device(0)))
		assert.LessOrEqual(t, time.Since(start), 10*time.Second+longWait)
	})
}

func TestPrepare_ClaimLocked_Fails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := w.start(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w.locks["claim a"] = make(chan struct{}, 1)
		w.locks["claim a"] <- struct{}{}
		_, err := p.Prepare(ctx, wants("a", device(0)))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, p.Unprepare(ctx, "a"), context.Canceled)
		<-w.locks["claim a"]

		p.mustPrepare(wants("a", device(0)))
		w.locks[string(uuid(0))] <- struct{}{}
		require.ErrorIs(t, p.Unprepare(t.Context(), "a"), context.DeadlineExceeded)
		<-w.locks[string(uuid(0))]
	})
}

func TestPrepare_NoListeners_Works(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := w.process(t)
		options := p.options()
		options.Retrying, options.Damaged = nil, nil
		p.run(options)
		w.records["a"] = nil
		w.noSpecs = gpu.ErrDriverNotLoaded
		_, err := p.Prepare(t.Context(), wants("a", device(0)))
		require.Error(t, err)
		_, err = p.Prepare(t.Context(), wants("a", device(0)))
		require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
	})
}

// TestPrepare_RecordOfAnotherClaim_NamedInLogOnly.
func TestPrepare_RecordOfAnotherClaim_NamedInLogOnly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p := w.start(t)
		p.mustPrepare(wants("theirs", device(0)))
		w.records["ours"] = w.records["theirs"]
		_, err := p.Prepare(t.Context(), wants("ours", device(1)))
		require.ErrorIs(t, err, checkpoint.ErrDamaged)
		assert.Contains(t, LogValues(err)[1], "it is of claim theirs")
		p.mustPrepare(wants("ours", device(1)))
	})
}

// TestRetry_LastAttemptCutShort_EarlierCauseReported: a try that waits for a lock until the call ends does not hide why it was retried.
func TestRetry_LastAttemptCutShort_EarlierCauseReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tries := 0
		_, err := retry(ctx, nil, func() (*checkpoint.Record, error) {
			if tries++; tries < 3 {
				return nil, fmt.Errorf("removing it: %w", gpu.ErrInUse)
			}
			<-ctx.Done()
			return nil, fmt.Errorf("waiting for the lock: %w", ctx.Err())
		})
		require.ErrorIs(t, err, gpu.ErrInUse)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.True(t, transient(err))
		assert.EqualError(t, err, "removing it: "+gpu.ErrInUse.Error()+"; the last attempt did not finish: waiting for the lock: context deadline exceeded")
		assert.Equal(t, 3, tries)
	})
}
