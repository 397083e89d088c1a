package collector

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

// TestOrders_StateNotWritten_RecordsAndRetries: a full disk does not end a recording.
func TestOrders_StateNotWritten_RecordsAndRetries(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		blocked := filepath.Join(n.dir, claimA, counters.StateFile+".tmp", "x")
		require.NoError(t, os.MkdirAll(blocked, 0o700))
		n.writes(order(claimA, gpuA))
		r := n.next()
		r.reports(event{reason: counters.Recording})
		assert.Zero(t, n.state(claimA))
		passes(retryEvery)
		require.NoError(t, os.RemoveAll(filepath.Dir(blocked)))
		passes(retryEvery)
		n.is(claimA, counters.Recording, "")
		require.NoError(t, os.MkdirAll(blocked, 0o700))
		r.ends(outcome{reason: counters.Ended})
		n.is(claimA, counters.Recording, "")
		require.NoError(t, os.RemoveAll(filepath.Dir(blocked)))
		passes(retryEvery)
		n.is(claimA, counters.Ended, "")
	})
}

func TestOrders_BusyNotWritten_Retried(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		blocked := filepath.Join(n.dir, counters.BusyFile+".tmp", "x")
		require.NoError(t, os.MkdirAll(blocked, 0o700))
		n.lists(busyA)
		n.writes(order(claimA, gpuA))
		n.is(claimA, counters.PerfmonBusy, uuidA+": Already under profiling")
		assert.Nil(t, n.busy())
		require.NoError(t, os.RemoveAll(filepath.Dir(blocked)))
		passes(checkEvery)
		assert.Equal(t, []string{uuidA}, n.busy())
		require.NoError(t, os.MkdirAll(blocked, 0o700))
		n.lists(free)
		passes(retryEvery)
		n.next().reports(event{reason: counters.Recording})
		assert.Equal(t, []string{uuidA}, n.busy())
		require.NoError(t, os.RemoveAll(filepath.Dir(blocked)))
		passes(checkEvery)
		assert.Equal(t, []string{}, n.busy())
	})
}

// TestOrders_Unreadable_Failed: an order of another version of the plugin, or of another claim.
func TestOrders_Unreadable_Failed(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.writesRaw(claimA, []byte("{"))
		n.is(claimA, counters.Failed, "reading an order: unexpected EOF")
		raw, err := new(order(claimB, gpuB)).Encode()
		require.NoError(t, err)
		n.writesRaw(claimA, raw)
		n.beginsNone()
		n.removes(claimA)
		n.writesRaw(claimA, raw)
		n.is(claimA, counters.Failed, "reading an order: unexpected EOF")
		n.writes(order(claimA, gpuA))
		assert.Equal(t, claimA, n.next().order.Claim)
	})
}

// TestOrders_NotFiles_Ignored: links out of the directory, and entries that are no folders of claims.
func TestOrders_NotFiles_Ignored(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		outside := t.TempDir()
		raw, err := new(order(claimA, gpuA)).Encode()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(outside, counters.OrderFile), raw, 0o600))
		require.NoError(t, os.Symlink(outside, filepath.Join(n.dir, claimA)))
		require.NoError(t, os.Mkdir(filepath.Join(n.dir, claimB), 0o700))
		require.NoError(t, os.Symlink(filepath.Join(outside, counters.OrderFile), filepath.Join(n.dir, claimB, counters.OrderFile)))
		require.NoError(t, os.WriteFile(filepath.Join(n.dir, "file"), raw, 0o600))
		require.NoError(t, os.Mkdir(filepath.Join(n.dir, "pipe"), 0o700))
		require.NoError(t, syscall.Mkfifo(filepath.Join(n.dir, "pipe", counters.OrderFile), 0o600))
		n.failures <- fsnotify.ErrEventOverflow
		synctest.Wait()
		n.notifies(filepath.Join(n.dir, "file", "x"))
		n.beginsNone()
		assert.Empty(t, n.orders.workers)
		assert.NotContains(t, n.watched, filepath.Join(n.dir, claimA))
	})
}

// TestOrders_EventsLost_AllRead: also that an order was removed.
func TestOrders_EventsLost_AllRead(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.writes(order(claimA, gpuA))
		r := n.next()
		require.NoError(t, os.RemoveAll(filepath.Join(n.dir, claimA)))
		require.NoError(t, os.Mkdir(filepath.Join(n.dir, claimB), 0o700))
		raw, err := new(order(claimB, gpuB)).Encode()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(n.dir, claimB, counters.OrderFile), raw, 0o600))
		n.failures <- fsnotify.ErrEventOverflow
		assert.True(t, is(r.terminated))
		assert.Equal(t, claimB, n.next().order.Claim)
	})
}

// TestOrders_NotWatchable_NotBegunAndRetried: the removal of the order would not be noticed.
func TestOrders_NotWatchable_NotBegunAndRetried(t *testing.T) {
	inBubble(t, func(_ *testing.T, n *node) {
		n.mu.Lock()
		n.watchErr = errors.New("no space left on device")
		n.mu.Unlock()
		n.writes(order(claimA, gpuA))
		n.beginsNone()
		n.mu.Lock()
		n.watchErr = nil
		n.mu.Unlock()
		passes(checkEvery)
		n.next()
	})
}

func TestOrders_DirectoryRemoved_Error(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.writes(order(claimA, gpuA))
		r := n.next()
		n.events <- fsnotify.Event{Name: n.dir, Op: fsnotify.Remove}
		require.ErrorContains(t, <-n.result, "was removed")
		assert.True(t, is(r.terminated))
	})
}
