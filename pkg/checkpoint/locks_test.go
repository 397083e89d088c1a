package checkpoint

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const waitLimit = time.Minute

// openLocks stands for one plugin process.
func openLocks(t *testing.T, dir string) *Locks {
	t.Helper()
	l, err := OpenLocks(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestLocks_SameClaim_ExclusiveInProcess(t *testing.T) {
	t.Parallel()
	l := openLocks(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var wg sync.WaitGroup
	inside, total := 0, 0
	for range 50 {
		wg.Go(func() {
			release, err := l.Claim(ctx, "uid")
			if err != nil {
				t.Error(err)
				return
			}
			inside++ // the race detector checks this
			assert.Equal(t, 1, inside)
			inside--
			total++
			release()
		})
	}
	wg.Wait()
	assert.Equal(t, 50, total)
	assert.Empty(t, l.slots, "unused queues are removed")
}

func TestLocks_AnotherProcess_Excluded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, young := openLocks(t, dir), openLocks(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()

	release, err := old.Lead(ctx)
	require.NoError(t, err)
	got := make(chan func())
	go func() {
		r, err := young.Lead(ctx)
		assert.NoError(t, err)
		got <- r
	}()
	select {
	case <-got:
		t.Fatal("two processes lead")
	case <-time.After(50 * time.Millisecond):
	}
	release()
	select {
	case r := <-got:
		r()
	case <-ctx.Done():
		t.Fatal("the lead lock was not acquired after its release")
	}
}

func TestLocks_GivenUp_Released(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, young := openLocks(t, dir), openLocks(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	release, err := old.Claim(ctx, "uid")
	require.NoError(t, err)

	short, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	_, err = young.Claim(short, "uid")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = old.Claim(short, "uid")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	release()
	for _, l := range []*Locks{young, old, young} {
		release, err := l.Claim(ctx, "uid")
		require.NoError(t, err)
		release()
	}
}

func TestLocks_TakenByAnotherProcess_ForeignReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, young := openLocks(t, dir), openLocks(t, dir)
	ctx := t.Context()
	hold := func(l *Locks, uuids ...gpu.UUID) bool {
		release, foreign, err := l.GPUs(ctx, uuids)
		require.NoError(t, err)
		release()
		return foreign
	}
	assert.True(t, hold(old, "GPU-a"), "a process that has read no records must read them")
	assert.False(t, hold(old, "GPU-a"))
	assert.True(t, hold(young, "GPU-a"))
	assert.True(t, hold(old, "GPU-a"))
	assert.False(t, hold(old, "GPU-a"))
	assert.True(t, hold(old, "GPU-a", "GPU-b"))
	assert.False(t, hold(old, "GPU-b", "GPU-a", "GPU-a"))
}

// TestLocks_FailedTry_ForeignStillReported: a call that gave up waiting for one GPU has not read the records of the others.
func TestLocks_FailedTry_ForeignStillReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, young := openLocks(t, dir), openLocks(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	hold := func(l *Locks, uuids ...gpu.UUID) (func(), bool) {
		release, foreign, err := l.GPUs(ctx, uuids)
		require.NoError(t, err)
		return release, foreign
	}
	for _, uuids := range [][]gpu.UUID{{"GPU-a", "GPU-b"}, {"GPU-b", "GPU-a"}} {
		waited, other := uuids[0], uuids[1]
		release, _ := hold(young, uuids...)
		release()
		release, _ = hold(old, other) // old changes something of it
		release()
		release, _ = hold(old, waited)
		short, stop := context.WithTimeout(ctx, time.Millisecond)
		_, _, err := young.GPUs(short, uuids)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		stop()
		release()
		release, foreign := hold(young, other)
		assert.True(t, foreign, "%s was changed by another process", other)
		release()
	}
}

func TestLocks_DifferentGPUs_Independent(t *testing.T) {
	t.Parallel()
	l := openLocks(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	releaseA, _, err := l.GPUs(ctx, []gpu.UUID{"GPU-a"})
	require.NoError(t, err)
	releaseB, _, err := l.GPUs(ctx, []gpu.UUID{"GPU-b"})
	require.NoError(t, err)
	releaseB()
	releaseA()
}

func TestLocks_OppositeOrders_NoDeadlock(t *testing.T) {
	t.Parallel()
	l := openLocks(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 100 {
		uuids := []gpu.UUID{"GPU-a", "GPU-b", "GPU-c"}
		if i%2 == 0 {
			uuids = []gpu.UUID{"GPU-c", "GPU-b", "GPU-a"}
		}
		wg.Go(func() {
			release, _, err := l.GPUs(ctx, uuids)
			if err != nil {
				t.Error(err)
				return
			}
			release()
		})
	}
	wg.Wait()
}

// TestLocks_Waiting_FirstComeFirstServed: within a process no call is overtaken.
func TestLocks_Waiting_FirstComeFirstServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := openLocks(t, dir)
		release, err := l.Claim(t.Context(), "uid")
		require.NoError(t, err)
		const comers = 50
		served := make(chan int, comers)
		var all sync.WaitGroup
		for n := range comers {
			all.Go(func() {
				release, err := l.Claim(t.Context(), "uid")
				if assert.NoError(t, err) {
					served <- n
					release()
				}
			})
			synctest.Wait() // until this one waits
		}
		release()
		all.Wait()
		for n := range comers {
			assert.Equal(t, n, <-served)
		}
	})
}

// TestLocks_WaitingForOneGPU_OthersFree: the holder of the second one hangs; a call for only the first or the third is not delayed.
func TestLocks_WaitingForOneGPU_OthersFree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, other := openLocks(t, dir), openLocks(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	all := []gpu.UUID{"GPU-a", "GPU-b", "GPU-c"}
	for _, hanging := range all {
		for _, holder := range []*Locks{l, other} {
			release, _, err := holder.GPUs(ctx, []gpu.UUID{hanging})
			require.NoError(t, err)
			got := make(chan error, 1)
			go func() {
				release, _, err := l.GPUs(ctx, all)
				if err == nil {
					release()
				}
				got <- err
			}()
			for range 20 {
				for _, id := range all {
					if id != hanging {
						free, _, err := other.GPUs(ctx, []gpu.UUID{id})
						require.NoError(t, err)
						free()
					}
				}
			}
			release()
			require.NoError(t, <-got)
		}
	}
}

// TestLocks_CallEnded_NotLocked.
func TestLocks_CallEnded_NotLocked(t *testing.T) {
	t.Parallel()
	l := openLocks(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		_, err := l.Claim(ctx, "uid")
		require.ErrorIs(t, err, context.Canceled)
	}
}
