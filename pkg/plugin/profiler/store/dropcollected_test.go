package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// justFinished is the note of a session that ended now.
var justFinished = strings.Replace(finished, "exited=2000\n", "", 1)

// put creates a file, or a folder with a note.
func (w *world) put(path string, isFolder bool) {
	if isFolder {
		require.NoError(w.t, os.MkdirAll(path, 0o700))
		path = filepath.Join(path, "note")
	}
	require.NoError(w.t, os.WriteFile(path, []byte("x"), 0o600))
}

// TestSweep_CollectorFolder_RemovedWhenNothingNeedsIt: not while counters may be recorded, or something must be processed.
func TestSweep_CollectorFolder_RemovedWhenNothingNeedsIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// prepared: the claim has a record. released: its containers are gone. counters: its record says that counters are recorded.
		prepared, released, counters bool
		put                          func(w *world)
		want                         bool
	}{
		"prepared":                  {true, false, true, nil, true},
		"prepared without counters": {true, false, false, nil, false},
		"prepared again elsewhere":  {true, true, true, nil, true},
		"released":                  {false, true, true, nil, false},
		"not released yet":          {false, false, true, nil, true},
		"ordered":                   {false, true, true, func(w *world) { w.put(w.collected(counters.OrderFile), false) }, true},
		"ordered without counters":  {true, false, false, func(w *world) { w.put(w.collected(counters.OrderFile), false) }, true},
		"recording":                 {false, true, true, func(w *world) { w.put(w.collected(counters.InboxDir, folder), true) }, true},
		"waiting":                   {false, true, true, func(w *world) { w.put(w.collected(counters.InboxDir, waitFolder), true) }, true},
		"waiting without counters":  {true, false, false, func(w *world) { w.put(w.collected(counters.InboxDir, waitFolder), true) }, true},
		"ended": {false, true, true, func(w *world) {
			w.put(w.collected(counters.StateFile), false)
			w.put(w.collected(counters.PlanDir, "run"), false)
			w.put(w.collected(counters.PlanDir, stopFile), false)
			w.put(w.collected(counters.InboxDir, "other"), true)
		}, false},
	} {
		for _, again := range []bool{false, true} { // the next process
			w := newCounted(t)
			w.put(filepath.Join(w.collector, counters.BusyFile), false)
			of := withCounters()
			of.Counters = c.counters
			require.NoError(t, w.Prepare(of, nil))
			if c.put != nil {
				c.put(w)
			}
			if c.released {
				require.NoError(t, w.Release(uid))
			}
			if again {
				w.reopen(false, disk.OS{})
			}
			require.NoError(t, w.Sweep(preparedIs(map[string]bool{uid: c.prepared})))
			want := []string{uid, counters.BusyFile}
			if !c.want {
				want = want[1:]
			}
			assert.Equal(t, want, w.entries(), name)
			_, err := os.Stat(filepath.Join(w.dir, uid))
			assert.Equal(t, c.prepared || c.want, err == nil, "%s: the folder of a claim stays as long as the collector's", name)
		}
	}
}

// TestSweep_CollectorFolder_LastReportsStored: a claim is released while the collector ends the recording.
func TestSweep_CollectorFolder_LastReportsStored(t *testing.T) {
	t.Parallel()
	w := newCounted(t)
	held := w.locks(w.records("", recordingNote))
	w.put(w.collected(counters.OrderFile), false)
	w.Scan()
	require.NoError(t, w.Release(uid))
	require.NoError(t, os.Remove(w.collected(counters.OrderFile)))
	for range 2 {
		w.Scan()
		require.NoError(t, w.Sweep(preparedIs(nil)))
		require.Equal(t, report.Recording, w.get().State)
		assert.False(t, w.claims[uid].rests())
	}
	w.records("counters", justFinished)
	require.NoError(t, held.Close())
	for range 2 {
		w.Scan()
		assert.Equal(t, report.Ready, w.get().State)
		assert.False(t, w.claims[uid].rests(), "the folder is still to be removed")
	}
	require.NoError(t, w.Sweep(preparedIs(nil)))
	assert.Empty(t, w.entries())
	w.Scan()
	assert.True(t, w.claims[uid].rests())
	assert.Equal(t, "counters", w.kept(id))
}

// TestSweep_RecordingWithoutCounters_Stored: the claim was prepared again otherwise, also if the process restarted.
func TestSweep_RecordingWithoutCounters_Stored(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		w := newCounted(t)
		w.records("counters", justFinished)
		require.NoError(t, w.Prepare(claimed, nil))
		if restarted {
			w.reopen(false, disk.OS{})
			require.NoError(t, w.Sweep(holding(uid)))
		}
		w.Scan()
		assert.Equal(t, "counters", w.kept(id))
		require.NoError(t, w.Sweep(holding(uid)))
		assert.Empty(t, w.entries())
		require.NoError(t, w.Prepare(withCounters(), nil))
		assert.Equal(t, []string{uid}, w.entries())
	}
}

// TestSweep_CollectorFolderOfUnknownClaim_Removed: with its order and recordings, but never of a prepared claim, of one whose index is
// damaged, or while another process stores reports.
func TestSweep_CollectorFolderOfUnknownClaim_Removed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepared bool
		put      func(w *world)
		want     bool
	}{
		"unknown":  {false, func(*world) {}, false},
		"prepared": {true, func(*world) {}, true},
		"damaged": {false, func(w *world) {
			w.put(filepath.Join(w.dir, "other", reportsDir), true)
			w.put(filepath.Join(w.dir, "other", indexFile), false)
		}, true},
		"without an index": {false, func(w *world) { w.put(filepath.Join(w.dir, "other", inboxDir), true) }, false},
		"follows":          {false, func(w *world) { w.following = true }, true},
	} {
		w := newCounted(t)
		w.put(filepath.Join(w.collector, "other", counters.InboxDir, folder), true)
		w.put(filepath.Join(w.collector, "other", counters.OrderFile), false)
		w.put(filepath.Join(w.collector, counters.BusyFile), false)
		w.put(filepath.Join(w.collector, droppedPrefix+"x"), true)
		c.put(w)
		err := w.Sweep(preparedIs(map[string]bool{uid: true, "other": c.prepared}))
		assert.Equal(t, name == "damaged", err != nil, name)
		want := []string{uid, counters.BusyFile}
		if c.want {
			want = append(want, "other")
		}
		assert.ElementsMatch(t, want, w.entries(), name)
	}
}

// TestSweep_CollectorFolderPreparedMeanwhile_Kept: the claim is prepared again while records are read.
func TestSweep_CollectorFolderPreparedMeanwhile_Kept(t *testing.T) {
	t.Parallel()
	w := newCounted(t)
	require.NoError(t, w.Release(uid))
	require.NoError(t, w.Sweep(func() (map[string]bool, error) { return nil, w.Prepare(withCounters(), nil) }))
	assert.Equal(t, []string{uid}, w.entries())
	require.NoError(t, w.Release(uid))
	w.following = true
	require.NoError(t, w.Sweep(preparedIs(nil)))
	assert.Equal(t, []string{uid}, w.entries(), "another process may have prepared it")
	w.following = false
	require.NoError(t, os.RemoveAll(w.collector))
	require.NoError(t, w.Sweep(preparedIs(nil)))
	assert.NoDirExists(t, filepath.Join(w.dir, uid), "a folder that an administrator removed is not missed")
}

// TestSweep_FullCollectorFolder_NothingWaits: it is removed while the store is not locked.
func TestSweep_FullCollectorFolder_NothingWaits(t *testing.T) {
	t.Parallel()
	w := newCounted(t)
	w.put(w.collected(counters.InboxDir, "other"), true)
	w.put(filepath.Join(w.collector, "unknown", counters.InboxDir, folder), true)
	require.NoError(t, w.Release(uid))
	removed := 0
	w.reopen(false, &listing{removing: func() { w.List("", ""); removed++ }})
	require.NoError(t, w.Sweep(preparedIs(nil)))
	assert.Equal(t, 3, removed)
	assert.Empty(t, w.entries())
}

// TestStore_CountersKilledAnywhere_NothingLeaks: from the first Prepare until the last report expired, like
// TestStore_KilledAnywhere_NothingLeaks. The order is the extension's.
func TestStore_CountersKilledAnywhere_NothingLeaks(t *testing.T) {
	t.Parallel()
	prepared := map[string]bool{}
	steps := []func(w *world) error{
		func(w *world) error { prepared[uid] = true; return w.Prepare(withCounters(), nil) },
		func(w *world) error {
			w.put(w.collected(counters.OrderFile), false)
			w.records("counters", justFinished)
			w.writes(filepath.Join(w.dir, uid, inboxDir, "s1-0000000000000001"), "container", justFinished)
			w.Scan()
			return nil
		},
		func(w *world) error { return w.Prepare(claimed, nil) },
		func(w *world) error { return w.Sweep(preparedIs(prepared)) },
		func(w *world) error {
			require.NoError(w.t, os.RemoveAll(w.collected(counters.OrderFile)))
			w.Scan()
			return w.Sweep(preparedIs(prepared))
		},
		func(w *world) error { return w.Prepare(withCounters(), nil) },
		func(w *world) error { delete(prepared, uid); return w.Release(uid) },
		func(w *world) error { w.Scan(); return w.Sweep(preparedIs(prepared)) },
		func(w *world) error { w.now = w.now.Add(2 * claimed.Retention); return w.Sweep(preparedIs(prepared)) },
		func(w *world) error { return w.Sweep(preparedIs(prepared)) },
	}
	points := 0
	for died := true; died; points++ {
		left := points
		w := &world{t: t, dir: t.TempDir(), now: time.Now(), collector: filepath.Join(t.TempDir(), "collector")}
		w.reopen(false, dying{left: &left})
		for i, step := range steps {
			err := step(w)
			if died = left < 0; died {
				w.reopen(false, disk.OS{})
				err = step(w)
				left = 1 << 30
			}
			require.NoError(t, err, "step %d at fault point %d", i, points)
			switch i {
			case 1, 3:
				assert.Equal(t, map[report.State]int{report.Ready: 2}, w.states(""), "fault point %d", points)
				assert.Equal(t, []string{uid}, w.entries(), "step %d at fault point %d: the order exists", i, points)
			case 4, 7:
				assert.Empty(t, w.entries(), "step %d at fault point %d", i, points)
			case 5:
				assert.Equal(t, []string{uid}, w.entries(), "fault point %d", points)
			}
		}
		died = left > 1<<29 || left < 0
		assert.NoDirExists(t, filepath.Join(w.dir, uid), "fault point %d", points)
	}
	t.Logf("%d fault points", points)
}
