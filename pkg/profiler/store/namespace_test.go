package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// cluster has one namespace team, or none, and counts how often it was asked for it.
type cluster struct {
	team  Namespace
	err   error
	asked atomic.Int64
}

func (c *cluster) read(_ context.Context, _ string) (Namespace, error) {
	c.asked.Add(1)
	return c.team, c.err
}

// round asks once about what there is to ask.
func (w *world) round(c *cluster) {
	ctx, stop := context.WithCancel(w.t.Context())
	stop()
	w.FollowNamespaces(ctx, c.read)
}

// recorded is a world whose claim has a complete report.
func recorded(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, false)
	w.session("report.nsys-rep", []byte("content"), finished)
	w.Scan()
	require.Len(t, w.List("team", ""), 1)
	return w
}

// TestNamespace_MadeAgain_ReportsNotListedAndRemoved: the later namespace sees nothing of the former one, from before the node knows that it is
// another one.
func TestNamespace_MadeAgain_ReportsNotListedAndRemoved(t *testing.T) {
	w := recorded(t)
	c := &cluster{team: Namespace{UID: "first", Created: w.now.Add(-time.Hour)}}
	w.round(c)
	require.Len(t, w.List("team", "first"), 1)
	require.Equal(t, "first", w.List("", "")[0].NamespaceUID)
	require.Equal(t, "first", w.get().NamespaceUID)

	w.reopen(false, disk.OS{})
	assert.Empty(t, w.List("team", "second"), "before it was asked again")
	require.Len(t, w.List("team", "first"), 1, "a UID that is wrong removes nothing")
	w.round(c)
	require.Len(t, w.List("team", "first"), 1, "the controller was mistaken")

	c.team = Namespace{UID: "second", Created: w.now.Add(time.Hour)}
	assert.Empty(t, w.List("team", "second"))
	w.round(c)
	assert.Empty(t, w.List("", ""))
	require.NoFileExists(t, filepath.Join(w.dir, uid, reportsDir, id+readySuffix))
	require.NoError(t, w.Sweep(holding()))
	require.NoDirExists(t, filepath.Join(w.dir, uid))
}

// TestNamespace_Deleted_ReportsRemovedAsTheyEnd: those that are being recorded go when they are complete, and no controller sees them meanwhile.
func TestNamespace_Deleted_ReportsRemovedAsTheyEnd(t *testing.T) {
	w := importing(t)
	require.NoError(t, w.Prepare(claimed, nil))
	c := &cluster{team: Namespace{UID: "first", Created: w.now.Add(-time.Hour)}}
	w.round(c)
	c.team = Namespace{}
	w.now = w.now.Add(2 * namespaceCheck)
	w.round(c)
	assert.Empty(t, w.List("", ""))
	require.Equal(t, report.Importing, w.get().State, "its claim is prepared")
	require.NoError(t, w.Lead())
	w.round(c)
	assert.Empty(t, w.List("", ""), "a process that begins to store reports asks again")
	require.NoError(t, w.Release(uid))
	require.NoError(t, w.Sweep(holding()))
	require.NoError(t, w.Sweep(holding()))
	require.NoDirExists(t, filepath.Join(w.dir, uid))
}

// TestNamespace_IndexWithoutUID_OfTheOneThatIsThere: nothing of an earlier version is lost, unless its namespace is known to be a former one.
func TestNamespace_IndexWithoutUID_OfTheOneThatIsThere(t *testing.T) {
	for name, c := range map[string]struct {
		created time.Duration // after the claim was prepared
		listed  int
	}{
		"older":           {-time.Hour, 1},
		"clocks differ":   {namespaceSkew / 2, 1},
		"created after":   {2 * namespaceSkew, 0},
		"long after that": {240 * time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := recorded(t)
			require.Len(t, w.List("team", "now"), 1, "until it is known")
			w.round(&cluster{team: Namespace{UID: "now", Created: w.now.Add(c.created)}})
			assert.Len(t, w.List("team", "now"), c.listed)
			assert.Empty(t, w.List("team", "another"))
		})
	}
}

// TestNamespace_NoAnswer_NothingRemoved: only the API server's answer ends a namespace.
func TestNamespace_NoAnswer_NothingRemoved(t *testing.T) {
	w := recorded(t)
	w.round(&cluster{err: errors.New("no answer")})
	require.Len(t, w.List("team", "any"), 1)
}

// TestNamespace_ReadBeforeAClaimWasPrepared_NotOfThatClaim: the namespace may have been made again since it was read.
func TestNamespace_ReadBeforeAClaimWasPrepared_NotOfThatClaim(t *testing.T) {
	w := newWorld(t, false)
	other := claimed
	other.UID = "another"
	w.FollowNamespaces(stopped(t), func(context.Context, string) (Namespace, error) {
		require.NoError(t, w.Prepare(other, nil))
		return Namespace{UID: "first"}, nil
	})
	assert.Equal(t, "first", w.claims[uid].NamespaceUID)
	assert.Empty(t, w.claims[other.UID].NamespaceUID)
}

func stopped(t *testing.T) context.Context {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	return ctx
}

// TestNamespace_KnownUID_AskedSeldom: a node asks once for each namespace after a claim was prepared, and then every few hours, however often
// it is asked itself.
func TestNamespace_KnownUID_AskedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(Options{Dir: t.TempDir(), Files: disk.OS{}})
		require.NoError(t, err)
		c, answers := &cluster{team: Namespace{UID: "first", Created: time.Unix(1, 0)}}, atomic.Bool{}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			s.FollowNamespaces(ctx, func(ctx context.Context, name string) (Namespace, error) {
				found, err := c.read(ctx, name)
				if !answers.Load() {
					err = errors.New("no answer")
				}
				return found, err
			})
			close(ended)
		}()
		one, two := claimed, claimed
		two.UID = "another"
		require.NoError(t, s.Prepare(one, nil))
		require.NoError(t, s.Prepare(two, nil))
		time.Sleep(10 * namespaceRetry)
		assert.InDelta(t, 10, c.asked.Swap(0), 2, "one question at a time until there is an answer")
		answers.Store(true)
		time.Sleep(namespaceCheck)
		assert.EqualValues(t, 1, c.asked.Load())
		time.Sleep(4 * namespaceCheck)
		assert.InDelta(t, 4, c.asked.Swap(0), 1)
		for range 10 * int(namespaceRetry/time.Second) {
			s.List("team", "mistaken")
			time.Sleep(100 * time.Millisecond)
		}
		assert.LessOrEqual(t, c.asked.Load(), 1+int64(namespaceRetry/namespacePause), "no more than once a second")
		stop()
		<-ended
	})
}

// TestNamespace_UIDKnown_KeptByPrepareAndByLead: the claim is prepared again, and another process stores reports later.
func TestNamespace_UIDKnown_KeptByPrepareAndByLead(t *testing.T) {
	w := recorded(t)
	w.round(&cluster{team: Namespace{UID: "first"}})
	again := claimed
	again.Tool = "2025.1"
	require.NoError(t, w.Prepare(again, nil))
	require.NoError(t, os.Remove(filepath.Join(w.dir, uid, planDir, "run")))
	require.NoError(t, w.Lead())
	assert.Equal(t, "first", w.claims[uid].NamespaceUID)
	assert.Equal(t, "2025.1", w.claims[uid].Claim.Tool)
}
