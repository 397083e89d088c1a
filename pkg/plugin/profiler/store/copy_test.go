package store

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// slow is a disk on which each write of a report's file takes the time of wrote.
type slow struct {
	disk.OS
	wrote   func()
	created int
}

func (d *slow) Create(path string, perm fs.FileMode) (disk.File, error) {
	d.created++
	f, err := d.OS.Create(path, perm)
	return slowFile{f, d}, err
}

type slowFile struct {
	disk.File
	disk *slow
}

func (f slowFile) Write(data []byte) (int, error) {
	f.disk.wrote()
	return f.File.Write(data)
}

// roomy sets another limit for the world's claim.
func (w *world) roomy(limit int64) {
	c := claimed
	c.MaxBytes = limit
	require.NoError(w.t, w.Prepare(c, nil))
}

// TestScan_LongCopy_OthersLimited: while the file of a claim is copied, others are stopped and their inboxes emptied as usual.
func TestScan_LongCopy_OthersLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	files := &slow{}
	w.reopen(false, files)
	w.roomy(1 << 30)
	other := claimed
	other.UID, other.MaxBytes = "other", 1<<20
	require.NoError(t, w.Prepare(other, nil))
	inbox := filepath.Join(w.dir, other.UID, inboxDir, "file")
	w.session("report.nsys-rep", bytes.Repeat([]byte("x"), 4*copyPart), finished)
	stopped, size := 0, int64(0)
	files.wrote = func() {
		if stopped == 0 {
			require.NoError(t, os.WriteFile(inbox, make([]byte, 2<<20), 0o600))
		}
		stopped = max(stopped, 1+len(w.stopped(other.UID)))
		if info, err := os.Stat(inbox); err == nil {
			size = info.Size()
		}
		w.now = w.now.Add(grace / 64) // of 256 writes in a part
	}
	w.Scan()
	assert.Equal(t, 2, stopped, "while the file was copied")
	assert.Zero(t, size, "while the file was copied")
	assert.Equal(t, report.Ready, w.get().State)
}

// TestScan_LimitCountedWhileCopied_NotTwice: a file that is stored and still in the inbox counts once.
func TestScan_LimitCountedWhileCopied_NotTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	files := &slow{}
	files.wrote = func() { w.now = w.now.Add(scanEvery) }
	w.reopen(false, files)
	w.roomy(5 * copyPart)
	w.many(uid, 0, 2, finished, strings.Repeat("x", 2*copyPart))
	w.seen = nil
	w.Scan()
	assert.Equal(t, map[report.State]int{report.Ready: 2}, w.states(""))
	assert.Len(t, w.seen, 2, "and recording was never stopped")
}

// TestScan_SparseFile_NotCopied: holes cost a container nothing, but would cost the node their size and the time to copy them.
func TestScan_SparseFile_NotCopied(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int64{"report.nsys-rep": 1 << 30, "report.qdstrm": 1 << 30} {
		w := newWorld(t, true)
		files := &slow{wrote: func() {}}
		w.reopen(true, files)
		w.roomy(0)
		dir := w.session(name, []byte("x"), finished)
		require.NoError(t, os.Truncate(filepath.Join(dir, name), size))
		w.Scan()
		assert.Equal(t, []any{report.Lost, reasonSparse}, []any{w.get().State, w.get().Reason}, name)
		assert.Zero(t, files.created, name)
		assert.Empty(t, w.names(inboxDir), name)
	}
}
