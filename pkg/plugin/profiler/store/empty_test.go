package store

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maps creates the file that the profiler of a process that waits maps.
func (w *world) maps(name string, bytes int) string {
	dir := filepath.Join(w.wait(name), "tmp", "nvidia")
	require.NoError(w.t, os.MkdirAll(dir, 0o700))
	path := filepath.Join(dir, "sessions")
	require.NoError(w.t, os.WriteFile(path, make([]byte, bytes), 0o600))
	w.supervised(name)
	return path
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

// TestLimit_ProcessWaits_ItsFilesKept: an inbox over the limit is emptied, except for the files without which a process that waits could not
// be recorded any more.
func TestLimit_ProcessWaits_ItsFilesKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	mapped := w.maps(waitFolder, 180<<10)
	w.fill(2 << 20)
	w.Scan()
	require.Equal(t, []string{uid}, w.stopped(uid))
	w.scans()
	assert.Zero(t, sizeOf(t, filepath.Join(w.dir, uid, inboxDir, "other")))
	assert.EqualValues(t, 180<<10, sizeOf(t, mapped))
	assert.Empty(t, w.stopped(uid), "there is room again")
}

// TestLimit_ManyWait_HalfKept: containers may create any number of such folders, with files of any size.
func TestLimit_ManyWait_HalfKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	large := w.maps("w1-0123456789abcdef", maxWaiting+1)
	var all []string
	for i := range 16 {
		all = append(all, w.maps(fmt.Sprintf("w%d-0123456789abcdef", i+2), 128<<10))
	}
	w.scans()
	assert.Zero(t, sizeOf(t, large))
	kept := int64(0)
	for _, path := range all {
		kept += sizeOf(t, path)
	}
	assert.Positive(t, kept)
	assert.LessOrEqual(t, kept, claimed.MaxBytes/waitingPart)
	assert.Empty(t, w.stopped(uid), "there is room again")
}
