package allocation

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

// releases collects the calls of OnReleased.
type releases struct {
	mu   sync.Mutex
	list []time.Time
}

func (r *releases) add(until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, until)
}

func (r *releases) last() (until time.Time, count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list[len(r.list)-1], len(r.list)
}

func (w *world) release(content []byte) {
	w.t.Helper()
	require.NoError(w.t, disk.Replace(disk.OS{}, w.releaseFile(), content, 0o600, false))
}

func (w *world) releaseFile() string { return filepath.Join(w.dir, "plugin", maintenance.ReleasedFile) }

func inAMinute() time.Time { return time.Now().Add(time.Minute).UTC().Truncate(time.Second) }

// TestOnReleased_File_FollowedAtOnce: no periodic read is due for an hour.
func TestOnReleased_File_FollowedAtOnce(t *testing.T) {
	t.Parallel()
	w, calls := newWorld(t, never), &releases{}
	w.tracker.OnReleased(calls.add)
	until, _ := calls.last()
	require.Zero(t, until)
	w.run()
	is := func(want time.Time) func() bool {
		return func() bool {
			until, _ := calls.last()
			return until.Equal(want)
		}
	}
	first := inAMinute()
	w.release(maintenance.NewReleased(first).Encode())
	w.eventually("released", is(first))
	second := first.Add(time.Minute)
	w.release(maintenance.NewReleased(second).Encode())
	w.eventually("prolonged", is(second))
	w.release([]byte("damaged"))
	w.eventually("damaged", is(time.Time{}))
	w.release(maintenance.NewReleased(first).Encode())
	w.eventually("released again", is(first))
	require.NoError(t, os.Remove(w.releaseFile()))
	w.eventually("removed", is(time.Time{}))
}

// TestOnReleased_BeforeRun_KnownAtOnce: an exporter that starts during maintenance opens no session.
func TestOnReleased_BeforeRun_KnownAtOnce(t *testing.T) {
	t.Parallel()
	w, calls := newWorld(t, never), &releases{}
	want := inAMinute()
	w.release(maintenance.NewReleased(want).Encode())
	w.tracker.OnReleased(calls.add)
	until, count := calls.last()
	assert.Equal(t, want, until)
	w.tracker.released.read()
	_, again := calls.last()
	assert.Equal(t, count, again, "nothing has changed")
}

func TestOnReleased_PastOrTooFar_NotReleased(t *testing.T) {
	t.Parallel()
	for _, until := range []time.Time{time.Now().Add(-time.Minute), time.Now().Add(time.Hour)} {
		w, calls := newWorld(t, never), &releases{}
		w.release(maintenance.NewReleased(until).Encode())
		w.tracker.OnReleased(calls.add)
		got, _ := calls.last()
		assert.Zero(t, got)
	}
}

// TestFileChanged_ReleaseFile_NoRecord: the plugin's other files are not records of claims.
func TestFileChanged_ReleaseFile_NoRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, never)
	w.tracker.fileChanged(filepath.Join(w.dir, "plugin", "health.json"), make(chan struct{}, 1))
	calls, want := &releases{}, inAMinute()
	w.tracker.OnReleased(calls.add)
	w.release(maintenance.NewReleased(want).Encode())
	w.tracker.fileChanged(w.releaseFile(), make(chan struct{}, 1))
	until, _ := calls.last()
	assert.Equal(t, want, until)
	assert.False(t, w.tracker.records.read)
	_, read := w.tracker.sources.last[SourceRecords]
	assert.False(t, read)
}
