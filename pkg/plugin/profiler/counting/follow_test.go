package counting

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/test/fakes"
)

// rest lets pauses between checks pass.
func rest() {
	time.Sleep(2 * pause)
	synctest.Wait()
}

// TestRun_NoCountedClaim_NothingWatched: without such claims nothing is watched, and no timer runs.
func TestRun_NoCountedClaim_NothingWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.kept = []*checkpoint.Record{{Claim: checkpoint.Claim{UID: uidA}, State: checkpoint.Done}}
		w.Begin(t.Context())
		w.Renewed()
		defer fakes.Run(t, w.lead)()
		defer fakes.Run(t, w.Run)()
		time.Sleep(24 * time.Hour)
		_, opened := w.watching()
		assert.Zero(t, opened)
		changed, busy := w.seen()
		assert.Empty(t, changed)
		assert.Empty(t, busy)
	})
}

// TestRun_StateChanges_StatusWrittenAgain: once for each change, at most once a second, and not for a rewrite of the same.
func TestRun_StateChanges_StatusWrittenAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer fakes.Run(t, w.Run)()
		for _, uid := range []string{uidA, uidB} {
			w.Written(counted(t, uid))
		}
		rest()
		names, opened := w.watching()
		assert.Equal(t, []string{uidA, uidB, "collector"}, names)
		assert.Equal(t, 1, opened)
		for _, reason := range []counters.Reason{counters.Recording, counters.Ended, counters.Failed} {
			w.state(uidA, reason, "")
			rest()
			changed, _ := w.seen()
			assert.Equal(t, []string{uidA}, changed)
		}
		w.state(uidA, counters.Failed, "")
		rest()
		changed, _ := w.seen()
		assert.Empty(t, changed)
		begin := time.Now()
		for i := range 100 {
			w.state(uidA, []counters.Reason{counters.PerfmonBusy, counters.Failed}[i%2], "")
			time.Sleep(150 * time.Millisecond)
		}
		rest()
		changed, _ = w.seen()
		assert.LessOrEqual(t, len(changed), int(time.Since(begin)/pause)+1)
		assert.NotEmpty(t, changed)
		time.Sleep(time.Hour)
		changed, _ = w.seen()
		assert.Empty(t, changed)
	})
}

// TestRun_LastClaimReleased_WatchedForAWhile: the collector may report busy counters until its programs have ended; then nothing is left.
func TestRun_LastClaimReleased_WatchedForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer fakes.Run(t, w.Run)()
		for i := range 2 {
			w.Written(counted(t, uidA))
			rest()
			w.Released(uidA)
			rest()
			names, opened := w.watching()
			assert.Equal(t, []string{"collector"}, names)
			assert.Equal(t, i+1, opened)
			w.notify(w.options.Dir)
			rest()
			w.uses(gpu1)
			rest()
			w.uses()
			rest()
			_, busy := w.seen()
			assert.Equal(t, [][]gpu.UUID{{gpu1}, nil}, busy)
			time.Sleep(linger)
			synctest.Wait()
			names, _ = w.watching()
			assert.Empty(t, names)
		}
		w.state(uidA, counters.Failed, "")
		time.Sleep(time.Hour)
		changed, _ := w.seen()
		assert.Empty(t, changed)
	})
}

// TestRun_NoInotify_CheckedRegularly: the user's inotify instances may all be in use, and become free.
func TestRun_NoInotify_CheckedRegularly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.noWatcher = errors.New("too many open files")
		defer fakes.Run(t, w.Run)()
		w.Written(counted(t, uidA))
		rest()
		w.state(uidA, counters.Recording, "")
		time.Sleep(unwatchedEvery + 2*pause)
		changed, _ := w.seen()
		assert.Equal(t, []string{uidA}, changed)
		w.mu.Lock()
		w.noWatcher = nil
		w.mu.Unlock()
		time.Sleep(unwatchedEvery + 2*pause)
		names, _ := w.watching()
		assert.Equal(t, []string{uidA, "collector"}, names)
		w.state(uidA, counters.Ended, "")
		rest()
		changed, _ = w.seen()
		assert.Equal(t, []string{uidA}, changed)
	})
}

// TestBusy_FirstPublication_AlreadyKept: new claims never find busy counters free because the plugin was restarted.
func TestBusy_FirstPublication_AlreadyKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.uses(gpu2, gpu1, gpu2)
		w.Begin(t.Context())
		_, busy := w.seen()
		assert.Equal(t, [][]gpu.UUID{{gpu1, gpu2}}, busy)
		defer fakes.Run(t, w.Run)()
		time.Sleep(time.Hour)
		_, busy = w.seen()
		assert.Empty(t, busy, "nothing changed")
		w.uses(gpu2)
		rest()
		_, busy = w.seen()
		assert.Equal(t, [][]gpu.UUID{{gpu2}}, busy, "without any claim")
		w.uses()
		rest()
		_, busy = w.seen()
		assert.Equal(t, [][]gpu.UUID{nil}, busy)
		time.Sleep(linger + 2*pause)
		names, _ := w.watching()
		assert.Empty(t, names)
	})
}

// TestBusy_FoundByARecording_Kept: also while the claim that found it still has its order.
func TestBusy_FoundByARecording_Kept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Begin(t.Context())
		defer fakes.Run(t, w.Run)()
		w.Written(counted(t, uidA))
		rest()
		w.uses(gpu1)
		w.state(uidA, counters.PerfmonBusy, "already in use")
		rest()
		changed, busy := w.seen()
		assert.Equal(t, []string{uidA}, changed)
		assert.Equal(t, [][]gpu.UUID{{gpu1}}, busy)
		require.NoError(t, os.WriteFile(filepath.Join(w.options.Dir, counters.BusyFile), []byte("{"), 0o600))
		w.notify(w.options.Dir)
		rest()
		_, busy = w.seen()
		assert.Equal(t, [][]gpu.UUID{nil}, busy, "a damaged file keeps no GPU from claims")
	})
}

// TestBusy_CollectorOff_Ignored: nothing would remove the taint.
func TestBusy_CollectorOff_Ignored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.uses(gpu1)
	w.options.Enabled = false
	w.Begin(t.Context())
	w.Lead(t.Context())
	_, busy := w.seen()
	assert.Empty(t, busy)
}

// TestLead_ClaimsOfEarlierProcess_Followed: as soon as the records can be read; claims that are not prepared, and others, are not.
func TestLead_ClaimsOfEarlierProcess_Followed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		intent := counted(t, uidB)
		intent.State = checkpoint.Intent
		w.kept = []*checkpoint.Record{intent, counted(t, uidA), {Claim: checkpoint.Claim{UID: "other"}, State: checkpoint.Done}}
		w.unread = errors.New("it fails")
		w.state(uidA, counters.Recording, "")
		defer fakes.Run(t, w.Run)()
		defer fakes.Run(t, w.lead)()
		rest()
		changed, _ := w.seen()
		assert.Empty(t, changed)
		w.mu.Lock()
		w.unread = nil
		w.mu.Unlock()
		time.Sleep(recordsRetry + 2*pause)
		changed, _ = w.seen()
		assert.Equal(t, []string{uidA}, changed)
		names, _ := w.watching()
		assert.Equal(t, []string{uidA, "collector"}, names)
		w.uses(gpu1)
		rest()
		_, busy := w.seen()
		assert.Equal(t, [][]gpu.UUID{{gpu1}}, busy)
	})
}

// TestInotify_FilesReplaced_Reported: also in a folder that was removed and made again, and not after Close.
func TestInotify_FilesReplaced_Reported(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	folder := filepath.Join(top, uidA)
	require.NoError(t, os.Mkdir(folder, 0o700))
	changes := make(chan struct{}, 1)
	w := &watches{open: func() (watcher, error) {
		return newInotify(func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		})
	}}
	replaced := func(path string) {
		t.Helper()
		require.True(t, w.set(top, []string{folder}))
		select { // of before
		case <-changes:
		default:
		}
		require.NoError(t, disk.Replace(disk.OS{}, path, []byte("{}"), 0o600, false))
		select {
		case <-changes:
		case <-time.After(time.Minute):
			t.Fatal("not reported: " + path)
		}
	}
	for range 2 {
		replaced(filepath.Join(top, counters.BusyFile))
		replaced(filepath.Join(folder, counters.StateFile))
		require.NoError(t, os.RemoveAll(folder))
		assert.False(t, w.set(top, []string{folder}), "it cannot be watched while it does not exist")
		require.NoError(t, os.Mkdir(folder, 0o700))
	}
	assert.True(t, w.set(top, nil))
	w.close()
}
