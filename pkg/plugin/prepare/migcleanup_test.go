package prepare

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
)

// TestPrepare_StepNotBegun_NotUndone: another MIG device may be at its placement by then.
func TestPrepare_StepNotBegun_NotUndone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		p := c.startWithMIG(t)
		w.refuse = always("make 9-4", gpu.ErrPermission)
		w.during = func(op string) {
			if op == "make 19-0" {
				c.there[migName("19-1")] = "MIG-of-an-administrator"
			}
		}
		_, err := p.Prepare(t.Context(), wantsOf("a", "19-0", "9-4", "19-1"))
		require.ErrorContains(t, err, "permission denied")
		assert.Equal(t, map[string]gpu.MIGUUID{migName("19-1"): "MIG-of-an-administrator"}, c.there)
		w.clean(t)
	})
}

// TestUnprepare_MIGDeviceStuck_OthersUndone of its claim.
func TestUnprepare_MIGDeviceStuck_OthersUndone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		p := c.startWithMIG(t)
		var pending []gpu.PendingCleanup
		p.pending = func(now []gpu.PendingCleanup) { pending = now }
		p.mustPrepare(wantsOf("a", "19-0", "9-4"))
		stuck := always("undo 9-4", errStuck)
		w.refuse = either(stuck, times(1, "put releasing", errDisk))
		require.Error(t, p.Unprepare(t.Context(), "a"))
		require.Len(t, c.there, 2, "nothing is undone before it is promised")
		w.refuse = stuck
		w.events()
		w.during = func(op string) {
			if op == "undo 19-0, made MIG-19-0" {
				w.refuse = either(stuck, times(1, "put releasing", errDisk))
			}
		}
		require.Error(t, p.Unprepare(t.Context(), "a"))
		w.during = nil
		both := usesOf("19-0", "9-4")
		assert.Equal(t, []gpu.PendingCleanup{{GPU: uuid(0), Uses: both}}, pending, "what the record still names is pending")

		require.EqualError(t, p.Unprepare(t.Context(), "a"), "undoing mig on GPU "+string(uuid(0))+": it is stuck")
		left := []gpu.PendingCleanup{{GPU: uuid(0), Uses: both[1:]}}
		assert.Equal(t, left, pending)
		require.Len(t, w.record(t, "a").Steps, 1)
		assert.Equal(t, map[string]gpu.MIGUUID{migName("9-4"): "MIG-9-4"}, c.there)

		p.mustPrepare(wantsOf("b", "19-0"))
		w.refuse = nil
		require.NoError(t, c.startWithMIG(t).Recover(t.Context()), "the next process finishes what is pending, and nothing else")
		assert.Equal(t, map[string]gpu.MIGUUID{migName("19-0"): "MIG-19-0"}, c.there)
	})
}

// TestUnprepare_FewerStepsLeftForSameCause_StoredAgain: the next process knows the steps that a retry has undone, although the rest is
// pending since the same time for the same cause.
func TestUnprepare_FewerStepsLeftForSameCause_StoredAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		w.steps = []string{"mode"} // for each device
		p := c.startWithMIG(t)
		p.mustPrepare(wantsOf("a", "19-0", "9-4"))
		undone := 0
		w.refuse = func(op string) error {
			if !strings.HasPrefix(op, "undo mode") {
				return nil
			}
			if undone++; undone == 2 {
				return nil
			}
			return errStuck
		}
		require.Error(t, p.Unprepare(t.Context(), "a"))
		before := w.record(t, "a")
		require.Error(t, p.Unprepare(t.Context(), "a"))
		after := w.record(t, "a")
		require.Equal(t, 3, undone)
		require.Equal(t, before.PendingCleanup, after.PendingCleanup)
		assert.Less(t, len(after.Steps), len(before.Steps))
		w.refuse = nil
		w.events()
		require.NoError(t, c.startWithMIG(t).Recover(t.Context()))
		assert.Len(t, slices.DeleteFunc(w.events(), func(op string) bool { return !strings.HasPrefix(op, "undo mode") }), 1)
	})
}

// TestUnprepare_MIGDeviceUndone_WaitingClaimWoken gets it although something else of that claim is not.
func TestUnprepare_MIGDeviceUndone_WaitingClaimWoken(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		p := c.startWithMIG(t)
		p.mustPrepare(wantsOf("a", "19-0", "9-4"))
		w.refuse = always("undo 9-4", errStuck)
		start, waited := time.Now(), make(chan error, 1)
		go func() {
			_, err := p.Prepare(t.Context(), wantsOf("b", "19-0"))
			waited <- err
		}()
		synctest.Wait()
		require.Error(t, p.Unprepare(t.Context(), "a"))
		require.NoError(t, <-waited)
		assert.Zero(t, time.Since(start), "at once")
	})
}

// TestPrepare_PendingCleanup_BlocksWhatItOccupies and nothing else.
func TestPrepare_PendingCleanup_BlocksWhatItOccupies(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		p := c.startWithMIG(t)
		var pending [][]gpu.PendingCleanup
		p.pending = func(now []gpu.PendingCleanup) { pending = append(pending, now) }
		p.mustPrepare(wantsOf("a", "20-6"))
		w.refuse = always("undo 20-6", errStuck)
		require.Error(t, p.Unprepare(t.Context(), "a"))
		left := gpu.PendingCleanup{GPU: uuid(0), Uses: usesOf("20-6")}
		assert.Equal(t, [][]gpu.PendingCleanup{{left}}, pending)
		var tried []string
		w.during = func(op string) { tried = append(tried, op) }

		p.mustPrepare(wantsOf("b", "9-0"))
		require.NoError(t, p.Unprepare(t.Context(), "b"))
		assert.NotContains(t, tried, "undo 20-6, made MIG-20-6", "a claim for another placement does not retry it")
		for _, placed := range []string{"9-4", "19-6", "20-0", ""} {
			_, err := p.Prepare(t.Context(), wantsOf("c", placed))
			require.ErrorContains(t, err, "cleanup of GPU "+string(uuid(0))+" after an earlier claim is still pending", placed)
			assert.Contains(t, tried, "undo 20-6, made MIG-20-6", "a claim for %q overlaps it and retries the cleanup", placed)
			assert.Nil(t, w.record(t, "c"))
			tried = nil
		}
		w.refuse = nil
		p.mustPrepare(wantsOf("c", "9-4"))
		assert.Equal(t, [][]gpu.PendingCleanup{{left}, nil}, pending)
		assert.Nil(t, w.record(t, "a"))
	})
}

func TestPendingCleanups_OfOneGPU_AddUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(2)
		p := c.startWithMIG(t)
		var pending []gpu.PendingCleanup
		p.pending = func(now []gpu.PendingCleanup) { pending = now }
		w.steps = nil
		p.mustPrepare(wantsOf("a", "19-0", "19-1"))
		p.mustPrepare(wantsOf("b", "9-4"))
		w.refuse = always("undo", errStuck)
		require.Error(t, p.Unprepare(t.Context(), "a"))
		require.Error(t, p.Unprepare(t.Context(), "b"))
		assert.Equal(t, []gpu.PendingCleanup{{GPU: uuid(0), Uses: usesOf("19-0", "19-1", "9-4")}}, pending)
		w.refuse = always("undo 9-4", errStuck)
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		assert.Equal(t, []gpu.PendingCleanup{{GPU: uuid(0), Uses: usesOf("9-4")}}, pending)
		assert.Equal(t, pending, func() (again []gpu.PendingCleanup) {
			_, _, _, err := ownership.New(records{w}, p, ownership.Options{PendingCleanups: func(pending []gpu.PendingCleanup) { again = pending }})
			require.NoError(t, err)
			return again
		}(), "a new process reports the same")
	})
}
