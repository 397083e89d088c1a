package store

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// withCounters is a claim whose counters are recorded.
func withCounters() Claim {
	c := claimed
	c.Counters = true
	return c
}

// newCounted returns a node with a collector, and a claim whose counters are recorded.
func newCounted(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), now: time.Now(), collector: filepath.Join(t.TempDir(), "collector")}
	w.reopen(false, disk.OS{})
	require.NoError(t, w.Prepare(withCounters(), nil))
	return w
}

// collected returns a path in the collector's folder of the claim.
func (w *world) collected(names ...string) string {
	return filepath.Join(append([]string{w.collector, uid}, names...)...)
}

// records creates a recording, like session, in the collector's inbox.
func (w *world) records(content, note string) string {
	return w.writes(w.collected(counters.InboxDir, folder), content, note)
}

// writes creates the folder of a recording.
func (w *world) writes(dir, content, note string) string {
	require.NoError(w.t, os.MkdirAll(dir, 0o700))
	require.NoError(w.t, os.WriteFile(filepath.Join(dir, "note"), []byte(note), 0o600))
	if content != "" {
		require.NoError(w.t, os.WriteFile(filepath.Join(dir, "report"+readySuffix), []byte(content), 0o600))
	}
	return dir
}

// locks locks the note of a folder.
func (w *world) locks(dir string) *os.File {
	f, err := os.OpenFile(filepath.Join(dir, "note"), os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = f.Close() })
	require.NoError(w.t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	return f
}

// entries returns the names in the directory of the collector.
func (w *world) entries(names ...string) (all []string) {
	there, err := os.ReadDir(filepath.Join(append([]string{w.collector}, names...)...))
	require.NoError(w.t, err)
	for _, entry := range there {
		all = append(all, entry.Name())
	}
	return all
}

// kept returns the stored file of a report.
func (w *world) kept(id string) string {
	_, r, err := w.find(uid, id)
	require.NoError(w.t, err)
	raw, err := os.ReadFile(filepath.Join(w.dir, uid, reportsDir, stored(r)))
	require.NoError(w.t, err)
	return string(raw)
}

// TestPrepare_Counters_FoldersOfCollector: they are for root only, and each Prepare repairs them.
func TestPrepare_Counters_FoldersOfCollector(t *testing.T) {
	t.Parallel()
	w := newCounted(t)
	paths := []string{
		w.collector, w.collected(), w.collected(counters.PlanDir), w.collected(counters.PlanDir, session.ControlFolder), w.collected(counters.InboxDir),
	}
	assert.Equal(t, w.collected(), w.CollectorFolder(uid))
	for _, damage := range []func() error{
		func() error { return nil },
		func() error { return os.RemoveAll(w.collector) },
		func() error { return os.RemoveAll(w.collected(counters.InboxDir)) },
		func() error { return os.Chmod(w.collected(), 0o755) },
		func() error { return os.Chmod(w.collector, 0o755) },
	} {
		require.NoError(t, damage())
		require.NoError(t, w.Prepare(withCounters(), nil))
		for _, path := range paths {
			info, err := os.Stat(path)
			require.NoError(t, err)
			assert.Equal(t, fs.ModeDir|0o700, info.Mode(), path)
		}
	}
	assert.DirExists(t, filepath.Join(w.dir, uid, inboxDir), "its containers may be profiled, too")
}

// TestPrepare_NoCounters_NoFolderOfCollector: nor is a folder of that name read, or a store without a collector changed.
func TestPrepare_NoCounters_NoFolderOfCollector(t *testing.T) {
	t.Parallel()
	w := newCounted(t)
	for _, c := range []struct {
		collector string
		counters  bool
	}{{"", true}, {filepath.Join(t.TempDir(), "collector"), false}} {
		other := &world{t: t, dir: t.TempDir(), now: w.now, collector: c.collector}
		other.reopen(false, disk.OS{})
		of := claimed
		of.Counters = c.counters
		for range 2 {
			require.NoError(t, other.Prepare(of, nil))
		}
		assert.NoDirExists(t, other.collector)
		other.Collector = w.collector
		w.records("content", finished)
		other.Scan()
		assert.Empty(t, other.List("", ""))
		require.Len(t, other.Prepared("", ""), 1)
		assert.False(t, other.Prepared("", "")[0].Counters)
	}
}

// TestScan_RecordingOfCollector_StoredLikeOthers: beside a container's.
func TestScan_RecordingOfCollector_StoredLikeOthers(t *testing.T) {
	t.Parallel()
	w := newCounted(t)
	w.records("counters", finished)
	w.many(uid, 1, 2, finished, "container")
	w.Scan()
	assert.Equal(t, map[report.State]int{report.Ready: 2}, w.states("team"))
	assert.Equal(t, "counters", w.kept(id))
	assert.Equal(t, "container", w.kept("0b1c2d3e-s1-0000000000000001"))
	assert.Empty(t, w.entries(uid, counters.InboxDir))
	assert.Empty(t, w.names(inboxDir))
}

// TestScan_RecordingRemoved_OtherInboxContinues: a folder that is missing in one inbox may be in the other.
func TestScan_RecordingRemoved_OtherInboxContinues(t *testing.T) {
	t.Parallel()
	const other = "0b1c2d3e-s1-0000000000000001"
	for _, gone := range []string{id, other} {
		w := newCounted(t)
		paths := map[string]string{id: w.records("", recordingNote), other: filepath.Join(w.dir, uid, inboxDir, "s1-0000000000000001")}
		w.many(uid, 1, 2, recordingNote, "")
		for _, path := range paths {
			w.locks(path)
		}
		for range 2 {
			w.Scan()
			assert.Equal(t, map[report.State]int{report.Recording: 2}, w.states(""))
		}
		require.NoError(t, os.RemoveAll(paths[gone]))
		w.Scan()
		for of := range paths {
			r, err := w.Get(uid, of)
			require.NoError(t, err)
			assert.Equal(t, map[bool]report.State{true: report.Lost, false: report.Recording}[of == gone], r.State)
		}
	}
	w := newCounted(t)
	w.locks(w.records("", recordingNote))
	w.Scan()
	require.NoError(t, os.RemoveAll(w.collected()))
	w.session("report.nsys-rep", []byte("content"), finished)
	w.Scan()
	assert.Equal(t, report.Ready, w.get().State, "without the collector's folder, containers are recorded")
}

// TestScan_NameForged_RecordingUnaffected: a container knows the name of the collector's recording, and creates a folder of that name.
func TestScan_NameForged_RecordingUnaffected(t *testing.T) {
	t.Parallel()
	for name, note := range map[string]string{
		"finished": finished, "cancelled": strings.Replace(finished, "Finished", "Cancelled", 1), "failed": failed, "recording": recordingNote,
	} {
		w := newCounted(t)
		dir := w.records("", recordingNote)
		held := w.locks(dir)
		w.session("report.nsys-rep", []byte("forged"), note)
		w.now = w.now.Add(2 * untrusted.Rest)
		for range 2 {
			w.Scan()
			assert.Equal(t, report.Recording, w.get().State, name)
			assert.Equal(t, "trainer", w.get().Pod, name)
			assert.Equal(t, []report.State{report.Recording}, w.seen, name)
		}
		w.records("counters", finished)
		require.NoError(t, held.Close())
		for range 2 {
			w.Scan()
			assert.Equal(t, "counters", w.kept(id), name)
		}
		assert.Len(t, w.List("", ""), 1, name)
		assert.Empty(t, w.names(inboxDir), "%s: the forged one is discarded, later", name)
	}
}

// TestScan_HostileRecording_Lost: the collector's inbox is read as carefully as others.
func TestScan_HostileRecording_Lost(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(outside, []byte("secret"), 0o600))
	w := newCounted(t)
	dir := w.records("", finished)
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "report"+readySuffix)))
	w.Scan()
	assert.Equal(t, report.Lost, w.get().State)
	assert.Empty(t, w.entries(uid, counters.InboxDir))
	assert.FileExists(t, outside)
}

// TestScan_CollectorWaitsOrCancels_FoldersRemoved: like a container's.
func TestScan_CollectorWaitsOrCancels_FoldersRemoved(t *testing.T) {
	t.Parallel()
	w := newCounted(t)
	dir := w.collected(counters.InboxDir, waitFolder)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "note"), []byte("state=Waiting\n"), 0o600))
	held := w.locks(dir)
	w.records("", strings.Replace(finished, "Finished", "Cancelled", 1))
	w.now = w.now.Add(2 * untrusted.Rest)
	w.Scan()
	assert.Empty(t, w.List("", ""))
	assert.Equal(t, []string{waitFolder}, w.entries(uid, counters.InboxDir))
	require.NoError(t, held.Close())
	w.Scan()
	assert.Empty(t, w.entries(uid, counters.InboxDir))
}

// TestLimit_BothInboxes_CountedAndStopped: together they exceed the claim's limit. Both plans say so, a kill or another writer does not
// change that, and both inboxes are emptied.
func TestLimit_BothInboxes_CountedAndStopped(t *testing.T) {
	t.Parallel()
	w := newCounted(t)
	stops := []string{filepath.Join(w.dir, uid, planDir, stopFile), w.collected(counters.PlanDir, stopFile)}
	files := []string{filepath.Join(w.dir, uid, inboxDir, "file"), w.collected(counters.InboxDir, "file")}
	exist := func(want bool) {
		t.Helper()
		for _, stop := range stops {
			_, err := os.Stat(stop)
			assert.Equal(t, want, err == nil, stop)
		}
	}
	for i, file := range files {
		exist(false)
		require.NoError(t, os.WriteFile(file, make([]byte, 600<<10), 0o600))
		w.Scan()
		exist(i == 1)
	}
	for _, stop := range stops {
		require.NoError(t, os.Remove(stop))
		w.Scan()
		exist(true)
	}
	w.now = w.now.Add(grace)
	w.Scan()
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.Zero(t, info.Size(), file)
	}
	w.now = w.now.Add(grace)
	w.Scan()
	exist(false)
	for _, stop := range stops {
		require.NoError(t, os.WriteFile(stop, nil, 0o600))
		w.Scan()
		exist(false)
	}
}

// TestLimit_StopKilledAnywhere_BothPlansFollowIndex: the next process completes it.
func TestLimit_StopKilledAnywhere_BothPlansFollowIndex(t *testing.T) {
	t.Parallel()
	for point, died := 0, true; died; point++ {
		w := newCounted(t)
		require.NoError(t, os.WriteFile(w.collected(counters.InboxDir, "file"), make([]byte, 2<<20), 0o600))
		left := point
		w.reopen(false, dying{left: &left})
		w.scans()
		died = left < 0
		w.reopen(false, disk.OS{})
		w.Scan()
		_, stopped := w.Of(uid)
		for _, stop := range []string{filepath.Join(w.dir, uid, planDir, stopFile), w.collected(counters.PlanDir, stopFile)} {
			_, err := os.Stat(stop)
			assert.Equal(t, stopped, err == nil, "%s at fault point %d", stop, point)
		}
	}
}

// TestLimit_LitteredInbox_OnlyThatEmptied: a container cannot remove the collector's files by creating too many in its own inbox.
func TestLimit_LitteredInbox_OnlyThatEmptied(t *testing.T) {
	t.Parallel()
	w := newCounted(t)
	dir := w.records("", recordingNote)
	w.locks(dir)
	deep := filepath.Join(w.dir, uid, inboxDir, "a/b/c/d/e/f/g/h/i/j/k/l")
	require.NoError(t, os.MkdirAll(deep, 0o755))
	w.Scan()
	w.now = w.now.Add(grace)
	w.Scan()
	assert.Empty(t, w.names(inboxDir))
	assert.FileExists(t, filepath.Join(dir, "note"))
}

// TestLimit_NodeFull_RecordingCounts: for the claim that it belongs to.
func TestLimit_NodeFull_RecordingCounts(t *testing.T) {
	t.Parallel()
	w := newCounted(t)
	w.NodeBytes = 1 << 20
	paths := []string{w.collected(counters.InboxDir, "file")}
	for _, of := range append(w.prepares("a", 1), w.prepares("b", 1)...) {
		paths = append(paths, filepath.Join(w.dir, of, inboxDir, "file"))
	}
	for i, path := range paths {
		require.NoError(t, os.WriteFile(path, make([]byte, 450<<10-i*50<<10), 0o600))
	}
	w.Scan()
	assert.Equal(t, []string{uid}, w.stopped(uid, "a-0", "b-0"))
}

// TestPrepared_Counters_SecondEntry: with the collector's folders, and without settings that are about containers.
func TestPrepared_Counters_SecondEntry(t *testing.T) {
	t.Parallel()
	w := newCounted(t)
	of := withCounters()
	of.ByHand = ByHand{Waits: true, OnDemand: true, SamplesCPU: true, Duration: time.Minute}
	require.NoError(t, w.Prepare(of, nil))
	require.NoError(t, w.Arm(uid, true, nil))
	all := w.Prepared("team", "")
	require.Len(t, all, 2)
	assert.Equal(t, []bool{true, false}, []bool{all[0].Counters, all[1].Counters})
	assert.Equal(t, Folders{Plan: w.collected(counters.PlanDir), Inbox: w.collected(counters.InboxDir)}, all[0].Folders)
	assert.Equal(t, w.collected(counters.PlanDir, session.ControlFolder), all[0].Control)
	assert.Equal(t, ByHand{Waits: true, Duration: time.Minute}, all[0].ByHand)
	assert.False(t, all[0].Armed)
	assert.Equal(t, w.Folders(uid), all[1].Folders)
	assert.Equal(t, filepath.Join(w.dir, uid, planDir, session.ControlFolder), all[1].Control)
	assert.Equal(t, of, all[1].Claim)
	assert.True(t, all[1].Armed)
	w.reopen(false, disk.OS{})
	assert.Len(t, w.Prepared("team", ""), 2, "also in the next process")
}

// TestWatch_Counters_BothInboxes: a session in either one is found soon.
func TestWatch_Counters_BothInboxes(t *testing.T) {
	t.Parallel()
	w := newCounted(t)
	watcher, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	defer func() { _ = watcher.Close() }()
	watched := map[string]bool{}
	require.NoError(t, w.Prepare(claimed, nil))
	w.claims[uid].collector = false
	for _, counted := range []bool{false, true} {
		if counted {
			require.NoError(t, w.Prepare(withCounters(), nil))
		}
		w.watch(watcher, watched)
		want := map[string]bool{filepath.Join(w.dir, uid, inboxDir): true}
		if counted {
			want[w.collected(counters.InboxDir)] = true
		}
		require.Equal(t, want, watched)
	}
	dir := w.records("content", finished)
	assert.Equal(t, dir, (<-watcher.Events).Name)
	require.NoError(t, w.Release(uid))
	w.watch(watcher, watched)
	assert.Empty(t, watched)
	assert.Empty(t, watcher.WatchList())
}
