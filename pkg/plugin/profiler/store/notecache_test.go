package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

var recordingNote = strings.Replace(finished, "Finished\nexited=2000", "Recording", 1)

// supervised locks the note of a session, like its supervisor.
func (w *world) supervised(session string) *os.File {
	f, err := os.OpenFile(filepath.Join(w.dir, uid, inboxDir, session, "note"), os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = f.Close() })
	require.NoError(w.t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	return f
}

// reads returns how many bytes of notes a scan reads.
func (w *world) reads() int64 {
	copying := &copies{ctx: w.t.Context(), files: disk.OS{}}
	require.NoError(w.t, w.scan(copying, uid))
	return scanNotes - copying.notes.left
}

// TestScan_NoteUnchanged_ReadOnce: for a running session, only the size and time of its note are read.
func TestScan_NoteUnchanged_ReadOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.session("", nil, recordingNote)
	f := w.supervised(folder)
	size := int64(len(recordingNote))
	for range 2 {
		assert.Equal(t, size, w.reads(), "a note that was just written may change in the same tick of the clock")
	}
	w.now = w.now.Add(2 * untrusted.Rest)
	require.Equal(t, size, w.reads())
	for range 2 {
		assert.Zero(t, w.reads())
	}
	require.Equal(t, report.Recording, w.get().State)

	_, err := f.WriteString("container=other\n")
	require.NoError(t, err)
	assert.Positive(t, w.reads())
	assert.Equal(t, "other", w.get().Container)
	w.now = w.now.Add(2 * untrusted.Rest)
	w.Scan()
	require.Zero(t, w.reads())
	require.NoError(t, f.Close())
	assert.Positive(t, w.reads(), "the end of the session needs all that the note says")
	assert.Equal(t, report.Lost, w.get().State)
}

// TestScan_LargeNotes_BoundedPerScan: the read bytes of notes that change all the time are limited, and the rest is read in later scans.
func TestScan_LargeNotes_BoundedPerScan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.roomy(0)
	const sessions, each = 40, scanNotes / untrusted.MaxNote
	w.many(uid, 0, sessions, recordingNote+strings.Repeat("x", 2*untrusted.MaxNote), "")
	for i := range sessions {
		w.supervised(fmt.Sprintf("s%d-%016x", i, i))
	}
	w.now = w.now.Add(2 * untrusted.Rest)
	for _, want := range []int{each, 2 * each, sessions, sessions} {
		assert.LessOrEqual(t, w.reads(), int64(scanNotes))
		assert.Equal(t, map[report.State]int{report.Recording: want}, w.states(""))
	}
	assert.Zero(t, w.reads())
}

// TestLimit_ClockSetBack_Truncated: data beyond a container's limit is removed before the clock has caught up.
func TestLimit_ClockSetBack_Truncated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.fill(2 << 20)
	w.Scan()
	w.now = w.now.Add(-time.Hour)
	w.reopen(false, disk.OS{})
	w.Scan()
	info, err := os.Stat(filepath.Join(w.dir, uid, inboxDir, "other"))
	require.NoError(t, err)
	assert.Zero(t, info.Size())
	w.Scan()
	assert.Empty(t, w.stopped(uid))
}

// TestLimit_LargeNote_Truncated: a container cannot bypass its limit by storing data in notes.
func TestLimit_LargeNote_Truncated(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int64{untrusted.MaxNote: untrusted.MaxNote, untrusted.MaxNote + 1: 0} {
		w := newWorld(t, false)
		dir := w.session("", nil, recordingNote+strings.Repeat("x", size-len(recordingNote)))
		w.supervised(folder)
		w.fill(2 << 20)
		w.Scan()
		w.now = w.now.Add(grace + time.Second)
		w.Scan()
		info, err := os.Stat(filepath.Join(dir, "note"))
		require.NoError(t, err)
		assert.Equal(t, want, info.Size(), "of %d bytes", size)
	}
}
