package store

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// listing is a disk whose removals require that the store's lock is free, and which counts unlimited listings.
type listing struct {
	disk.OS
	removing func()
	listed   []string
}

func (l *listing) List(dir string) ([]string, error) {
	l.listed = append(l.listed, filepath.Base(dir))
	return l.OS.List(dir)
}

func (l *listing) RemoveDir(dir string) error {
	l.removing()
	return l.OS.RemoveDir(dir)
}

// TestSweep_FullInbox_NothingWaits: the contents of an inbox are neither listed completely nor removed while the store is locked.
func TestSweep_FullInbox_NothingWaits(t *testing.T) {
	w := newWorld(t, false)
	for i := range 50 {
		require.NoError(t, os.MkdirAll(filepath.Join(w.dir, uid, inboxDir, fmt.Sprint(i)), 0o755))
	}
	files := &listing{}
	files.removing = func() { w.List("", "") }
	w.reopen(false, files)
	require.NoError(t, w.Sweep(preparedIs(nil)))
	assert.NotContains(t, files.listed, inboxDir)
	left, err := os.ReadDir(w.dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestSweep_KilledWhileRemoving_RemovedNext: a folder is renamed before it is removed, and the next sweep removes it.
func TestSweep_KilledWhileRemoving_RemovedNext(t *testing.T) {
	w := newWorld(t, false)
	require.NoError(t, os.MkdirAll(filepath.Join(w.dir, droppedPrefix+uid+"-1", inboxDir), 0o700))
	require.NoError(t, w.Sweep(preparedIs(map[string]bool{uid: true})))
	left, err := os.ReadDir(w.dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.Equal(t, uid, left[0].Name())
}

// TestSweep_PreparedElsewhere_NotReleased: a process that does not store reports prepared the claim, after this one had released it.
func TestSweep_PreparedElsewhere_NotReleased(t *testing.T) {
	w := newWorld(t, false)
	require.NoError(t, w.Release(uid))
	require.NoError(t, w.Sweep(preparedIs(map[string]bool{uid: true})))
	assert.False(t, w.claims[uid].Released)
	require.NoError(t, w.Sweep(preparedIs(nil)))
	assert.NotContains(t, w.claims, uid)
}

// TestSweep_ReleasedMeanwhile_StaysReleased: the claim is unprepared after the sweep read the prepared claims.
func TestSweep_ReleasedMeanwhile_StaysReleased(t *testing.T) {
	w := newWorld(t, false)
	require.NoError(t, w.Sweep(func() (map[string]bool, error) {
		return map[string]bool{uid: true}, w.Release(uid)
	}))
	assert.True(t, w.claims[uid].Released)
}

// TestPrepare_FolderOfClaim_RootOnly: other users of the node can reach neither the inbox, which is writable for everyone, nor the reports.
func TestPrepare_FolderOfClaim_RootOnly(t *testing.T) {
	w := newWorld(t, false)
	info, err := os.Stat(filepath.Join(w.dir, uid))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
}

// TestPrepare_DamagedIndex_KeptAside: the claim's container starts, and nothing is overwritten or removed.
func TestPrepare_DamagedIndex_KeptAside(t *testing.T) {
	w := newWorld(t, false)
	require.NoError(t, w.sync(uid))
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, uid, reportsDir, id+readySuffix), []byte("content"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, uid, indexFile), []byte("{damaged"), 0o600))
	w.reopen(false, disk.OS{})
	require.NoError(t, w.Prepare(claimed, nil))
	kept, err := os.ReadFile(filepath.Join(w.dir, uid, damagedFile))
	require.NoError(t, err)
	assert.Equal(t, "{damaged", string(kept))
	require.NoError(t, w.Sweep(preparedIs(nil)))
	assert.FileExists(t, filepath.Join(w.dir, uid, damagedFile))
}

// TestSweep_IndexHalfWritten_FolderRemoved: an index without reports is not synced, so a power cut may leave any content.
func TestSweep_IndexHalfWritten_FolderRemoved(t *testing.T) {
	for _, content := range []string{"", "{damaged"} {
		w := newWorld(t, false)
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, uid, indexFile), []byte(content), 0o600))
		w.reopen(false, disk.OS{})
		require.NoError(t, w.Prepare(claimed, nil))
		assert.NoFileExists(t, filepath.Join(w.dir, uid, damagedFile))
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, uid, indexFile), []byte(content), 0o600))
		w.reopen(false, disk.OS{})
		require.NoError(t, w.Sweep(preparedIs(nil)))
		assert.NoDirExists(t, filepath.Join(w.dir, uid))
	}
}

// unreadable is a disk that fails to read indexes.
type unreadable struct{ disk.OS }

func (unreadable) Read(path string) ([]byte, error) {
	if filepath.Base(path) == indexFile {
		return nil, unix.EIO
	}
	return os.ReadFile(path)
}

// TestPrepare_UnreadableIndex_NotReplaced: it may contain reports, and the next call may be able to read it.
func TestPrepare_UnreadableIndex_NotReplaced(t *testing.T) {
	w := newWorld(t, false)
	before, err := os.ReadFile(filepath.Join(w.dir, uid, indexFile))
	require.NoError(t, err)
	w.reopen(false, unreadable{})
	require.ErrorIs(t, w.Prepare(claimed, nil), unix.EIO)
	after, err := os.ReadFile(filepath.Join(w.dir, uid, indexFile))
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
}

// TestScan_StopFile_FollowsIndex: a full disk may have prevented its creation, a kill its removal.
func TestScan_StopFile_FollowsIndex(t *testing.T) {
	w := newWorld(t, false)
	stop := filepath.Join(w.dir, uid, planDir, stopFile)
	require.NoError(t, os.WriteFile(stop, nil, 0o600))
	w.Scan()
	assert.NoFileExists(t, stop)
	w.fill(2 << 20)
	w.Scan()
	require.FileExists(t, stop)
	require.NoError(t, os.Remove(stop))
	w.Scan()
	assert.FileExists(t, stop)
}

// fill writes a file into the inbox that is not part of a session.
func (w *world) fill(bytes int) {
	require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, uid, inboxDir, "other"), make([]byte, bytes), 0o600))
}

// TestScan_InboxTooDeep_Emptied: a file below the maximum depth takes space too.
func TestScan_InboxTooDeep_Emptied(t *testing.T) {
	w := newWorld(t, false)
	deep := filepath.Join(w.dir, uid, inboxDir, "a/b/c/d/e/f/g/h/i/j/k/l")
	require.NoError(t, os.MkdirAll(deep, 0o755))
	f, err := os.Create(filepath.Join(deep, "large"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(4<<20))
	w.Scan()
	w.now = w.now.Add(2 * grace)
	w.Scan()
	left, err := os.ReadDir(filepath.Join(w.dir, uid, inboxDir))
	require.NoError(t, err)
	assert.Empty(t, left)
	info, err := f.Stat()
	require.NoError(t, err)
	assert.Zero(t, info.Size(), "the file that is still open")
}

// TestActive_StoppedInboxGrows_ScannedSoon: containers that continue to write are scanned more often than idle ones.
func TestActive_StoppedInboxGrows_ScannedSoon(t *testing.T) {
	w := newWorld(t, false)
	w.fill(2 << 20)
	w.Scan()
	w.now = w.now.Add(grace)
	w.Scan()
	w.Scan()
	assert.False(t, w.active(), "nothing writes")
	w.fill(4 << 20)
	w.uses(pending{})
	assert.True(t, w.active())
}

// TestTruncate_OtherKinds_NotOpened: opening a device can have any effect.
func TestTruncate_OtherKinds_NotOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	reader, err := unix.Open(pipe, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(reader) }()
	in, err := untrusted.Open(dir)
	require.NoError(t, err)
	defer in.Close()
	(&Store{}).truncate(in, "pipe")
	events := []unix.PollFd{{Fd: int32(reader)}}
	_, err = unix.Poll(events, 0)
	require.NoError(t, err)
	assert.Zero(t, events[0].Revents&unix.POLLHUP, "the pipe was opened for writing")
}

// TestTruncate_Lease_Broken: a process that holds a lease on its file can keep it only until the kernel breaks it.
func TestTruncate_Lease_Broken(t *testing.T) {
	w := newWorld(t, false)
	w.fill(1 << 20)
	f, err := os.OpenFile(filepath.Join(w.dir, uid, inboxDir, "other"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("the filesystem of %s has no leases: %v", w.dir, err)
	}
	inbox, err := untrusted.Open(filepath.Join(w.dir, uid, inboxDir))
	require.NoError(t, err)
	defer inbox.Close()
	w.truncate(inbox, "other")
	require.Eventually(t, func() bool {
		holds, err := unix.FcntlInt(f.Fd(), unix.F_GETLEASE, 0)
		return err == nil && holds != unix.F_WRLCK
	}, 10*time.Minute, time.Millisecond, "the lease is being broken")
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		info, err := f.Stat()
		return err == nil && info.Size() == 0
	}, 10*time.Minute, time.Millisecond)
}

// TestDuplicate_FileChanges_NotReadToItsEnd: if a container changes its file all the time, only a part of it is read.
func TestDuplicate_FileChanges_NotReadToItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "source")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(3*copyPart))
	var before unix.Stat_t
	require.NoError(t, unix.Fstat(int(f.Fd()), &before))
	require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1, 0)))
	c := &copies{ctx: t.Context(), files: disk.OS{}, left: scanBytes}
	size, _, err := c.duplicate(f, &before, path+".copy")
	require.ErrorIs(t, err, errChanged)
	assert.EqualValues(t, copyPart, size)
	assert.EqualValues(t, scanBytes-copyPart, c.left)
}

// TestScan_BudgetUsed_NextScanGoesOn: one claim's files do not delay others.
func TestScan_BudgetUsed_NextScanGoesOn(t *testing.T) {
	w := newWorld(t, false)
	w.session("report.nsys-rep", []byte("content"), finished)
	inbox, err := untrusted.Open(filepath.Join(w.dir, uid, inboxDir))
	require.NoError(t, err)
	defer inbox.Close()
	done, err := w.Store.session(&copies{ctx: t.Context(), lost: 1, notes: w.notes(uid)}, uid, inbox, folder)
	require.NoError(t, err)
	assert.False(t, done)
	w.Scan()
	assert.Equal(t, report.Ready, w.get().State)
}

// TestScan_Ends_SessionStays: a plugin that exits while it copies leaves the session to the next plugin.
func TestScan_Ends_SessionStays(t *testing.T) {
	w := newWorld(t, false)
	dir := w.session("report.nsys-rep", []byte("content"), finished)
	ctx, end := context.WithCancel(t.Context())
	end()
	inbox, err := untrusted.Open(filepath.Join(w.dir, uid, inboxDir))
	require.NoError(t, err)
	defer inbox.Close()
	_, err = w.Store.session(&copies{ctx: ctx, files: disk.OS{}, left: scanBytes, lost: 1, notes: w.notes(uid)}, uid, inbox, folder)
	require.ErrorIs(t, err, context.Canceled)
	assert.DirExists(t, dir)
	_, err = w.Get(uid, id)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestScan_ImporterBusy_QueueWaits: a raw file waits longer than importLimit while the importer works on others.
func TestScan_ImporterBusy_QueueWaits(t *testing.T) {
	w := newWorld(t, true)
	w.session("report.qdstrm", []byte("raw"), finished)
	w.Scan()
	w.now = w.now.Add(2 * importLimit)
	w.markProgress()
	w.Scan()
	assert.Equal(t, report.Importing, w.get().State)
	w.now = w.now.Add(importLimit + time.Minute)
	w.Scan()
	assert.Equal(t, report.Raw, w.get().State)
}

// preparedIs returns the argument of a sweep.
func preparedIs(claims map[string]bool) func() (map[string]bool, error) {
	return func() (map[string]bool, error) { return claims, nil }
}
