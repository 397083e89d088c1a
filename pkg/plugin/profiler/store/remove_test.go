package store

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// stores adds reports with a file of one byte each to the claim, which ended at the world's time.
func (w *world) stores(count int, of string, state report.State) {
	c := w.claims[of]
	require.NoError(w.t, w.sync(of))
	ended := w.now
	for i := range count {
		r := &report.Report{
			ID: ReportID(of, fmt.Sprintf("s%d-%016x", i, len(c.Reports))), Namespace: c.Claim.Namespace, ClaimUID: of, State: state, Started: ended, Ended: &ended,
		}
		if state == report.Ready {
			r.Size, r.SHA256 = 1, "00"
			require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, of, reportsDir, stored(r)), []byte("x"), 0o600))
		}
		c.Reports = append(c.Reports, r)
	}
	require.NoError(w.t, w.save(c))
}

// writing is a disk that counts written indexes, and calls removing before it removes a file.
type writing struct {
	disk.OS
	indexes  int
	removing func()
	full     error
}

func (w *writing) Write(path string, data []byte, perm fs.FileMode, durable bool) error {
	if strings.HasPrefix(filepath.Base(path), indexFile) {
		w.indexes++
		if w.full != nil {
			return w.full
		}
	}
	return w.OS.Write(path, data, perm, durable)
}

func (w *writing) Remove(path string) error {
	if w.removing != nil {
		w.removing()
	}
	w.full = nil
	return w.OS.Remove(path)
}

// listBeside lists the reports concurrently, and then closes got.
func (w *world) listBeside(got chan struct{}) {
	w.List("", "")
	close(got)
}

// waitsOrHas returns once listBeside waits for the lock of the store, or got it. A goroutine that has waited for a millisecond, and was
// woken once while another one held the lock again, gets it next.
func waitsOrHas(got chan struct{}) {
	for buffer := make([]byte, 1<<20); ; time.Sleep(2 * time.Millisecond) {
		select {
		case <-got:
			return
		default:
		}
		for goroutine := range bytes.SplitSeq(buffer[:runtime.Stack(buffer, true)], []byte("\n\n")) {
			if header, _, _ := bytes.Cut(goroutine, []byte("\n")); bytes.Contains(header, []byte("[sync.Mutex.Lock")) && bytes.Contains(goroutine, []byte("listBeside")) {
				time.Sleep(2 * time.Millisecond)
				return
			}
		}
	}
}

// TestSweep_ManyReportsExpire_OneWrite: a thousand reports cost one durable write, and others get the store's lock while files are removed.
func TestSweep_ManyReportsExpire_OneWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.stores(1000, uid, report.Ready)
	files := &writing{}
	w.reopen(false, files)
	require.Len(t, w.List("", ""), 1000)
	w.now = w.now.Add(2 * claimed.Retention)
	removed, got := 0, make(chan struct{})
	files.removing = func() {
		switch removed++; {
		case removed == 1:
			go w.listBeside(got)
		case removed == 1000:
			select {
			case <-got:
			default:
				assert.Fail(t, "the lock was held for all files")
			}
		case removed%removeBatch == 0:
			waitsOrHas(got)
		}
	}
	require.NoError(t, w.Sweep(holding(uid)))
	<-got
	assert.Equal(t, 1, files.indexes)
	assert.Equal(t, 1000, removed)
	assert.Empty(t, w.List("", ""))
	left, err := os.ReadDir(filepath.Join(w.dir, uid, reportsDir))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestSweep_KilledWhileExpiring_ListedHaveFiles: at any point of a kill, the next process lists only reports with files, and no file
// without an index remains.
func TestSweep_KilledWhileExpiring_ListedHaveFiles(t *testing.T) {
	t.Parallel()
	for point, died := 0, true; died; point++ {
		w := newWorld(t, false)
		w.stores(3, uid, report.Ready)
		left := point
		w.reopen(false, dying{left: &left})
		w.now = w.now.Add(2 * claimed.Retention)
		_ = w.Sweep(holding(uid))
		died = left < 0
		follower, err := Open(Options{Dir: w.dir, Files: disk.OS{}, Follow: true})
		require.NoError(t, err)
		for _, r := range follower.List("", "") {
			f, _, err := follower.Content(uid, r.ID)
			require.NoError(t, err, "fault point %d", point)
			require.NoError(t, f.Close())
		}
		w.reopen(false, disk.OS{})
		names, err := os.ReadDir(filepath.Join(w.dir, uid, reportsDir))
		require.NoError(t, err)
		require.Len(t, names, len(w.List("", "")), "fault point %d", point)
	}
}

// TestDelete_DiskFull_FileMakesRoom: the index cannot be written before the file is gone.
func TestDelete_DiskFull_FileMakesRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.stores(1, uid, report.Ready)
	w.reopen(false, &writing{full: &os.PathError{Op: "write", Err: unix.ENOSPC}})
	require.NoError(t, w.Delete(uid, w.List("", "")[0].ID, report.Deletion{}))
	w.reopen(false, disk.OS{})
	assert.Empty(t, w.List("", ""))
}

// TestOpen_DamagedIndexKept_FilesStay: files of an unreadable index are not removed as files without a report.
func TestOpen_DamagedIndexKept_FilesStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.stores(1, uid, report.Ready)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, uid, indexFile), []byte("{damaged"), 0o600))
	w.reopen(false, disk.OS{})
	require.NoError(t, w.Prepare(claimed, nil))
	w.reopen(false, disk.OS{})
	left, err := os.ReadDir(filepath.Join(w.dir, uid, reportsDir))
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

// TestFree_SessionOfSameName_FileKept: a container may create a session with the name of a deleted report.
func TestFree_SessionOfSameName_FileKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.session("report.nsys-rep", []byte("content"), finished)
	w.Scan()
	old := w.get()
	require.NoError(t, w.free(uid, []*report.Report{&old}))
	f, _, err := w.Content(uid, id)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
