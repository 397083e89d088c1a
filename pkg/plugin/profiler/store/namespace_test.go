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

// cluster contains one namespace team, or none, and counts requests for it.
type cluster struct {
	team      Namespace
	err       error
	asked     atomic.Int64
	announced []bool
}

func (c *cluster) Namespace(context.Context, string) (Namespace, error) {
	c.asked.Add(1)
	return c.team, c.err
}

func (c *cluster) Announce(_ context.Context, keeps bool) error {
	c.announced = append(c.announced, keeps)
	return c.err
}

// round runs one round of checks.
func (w *world) round(c *cluster) {
	w.FollowCluster(stopped(w.t), c)
}

// recorded returns a world whose claim has a complete report.
func recorded(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, false)
	w.session("report.nsys-rep", []byte("content"), finished)
	w.Scan()
	require.Len(t, w.List("team", ""), 1)
	return w
}

// TestNamespace_MadeAgain_ReportsNotListedAndRemoved: the later namespace never lists reports of the former one, even before the node knows
// that they differ.
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
	w.now = w.now.Add(namespaceConfirm)
	w.round(c)
	require.NoFileExists(t, filepath.Join(w.dir, uid, reportsDir, id+readySuffix))
	require.NoError(t, w.Sweep(holding()))
	require.NoDirExists(t, filepath.Join(w.dir, uid))
}

// TestNamespace_Deleted_ReportsRemovedAsTheyEnd: reports that are being recorded are removed when they are complete, and hidden from
// controllers until then.
func TestNamespace_Deleted_ReportsRemovedAsTheyEnd(t *testing.T) {
	w := importing(t)
	require.NoError(t, w.Prepare(claimed, nil))
	c := &cluster{team: Namespace{UID: "first", Created: w.now.Add(-time.Hour)}}
	w.round(c)
	c.team = Namespace{}
	w.now = w.now.Add(2 * namespaceCheck)
	w.round(c)
	w.now = w.now.Add(namespaceConfirm)
	w.round(c)
	assert.Empty(t, w.List("", ""))
	require.Equal(t, report.Importing, w.get().State, "its claim is prepared")
	require.NoError(t, w.Lead())
	w.round(c)
	w.now = w.now.Add(namespaceConfirm)
	w.round(c)
	assert.Empty(t, w.List("", ""), "a process that begins to store reports asks again")
	require.NoError(t, w.Release(uid))
	require.NoError(t, w.Sweep(holding()))
	require.NoError(t, w.Sweep(holding()))
	require.NoDirExists(t, filepath.Join(w.dir, uid))
}

// TestNamespace_IndexWithoutUID_OfTheOneThatIsThere: reports of an earlier version are kept, unless their namespace is known to be a former
// one.
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

// TestNamespace_OneOddAnswer_NothingRemoved: reports are removed after a second answer, and not before.
func TestNamespace_OneOddAnswer_NothingRemoved(t *testing.T) {
	for name, odd := range map[string]Namespace{"none": {}, "another": {UID: "other", Created: time.Now().Add(time.Hour)}} {
		t.Run(name, func(t *testing.T) {
			w, kept := recorded(t), claimed
			kept.Retention = 0
			require.NoError(t, w.Prepare(kept, nil))
			c := &cluster{team: Namespace{UID: "first", Created: w.now.Add(-time.Hour)}}
			w.round(c)
			right := c.team
			for _, c.team = range []Namespace{odd, odd, right, odd} { // the second is too early
				w.identities.doubt("team")
				w.round(c)
				if c.team == right {
					require.Len(t, w.List("team", "first"), 1)
				}
				w.now = w.now.Add(namespaceConfirm / 3)
				require.NoError(t, w.Sweep(holding()))
			}
			w.now = w.now.Add(namespaceConfirm)
			require.NoError(t, w.Sweep(holding()))
			c.team = right
			w.round(c)
			require.Len(t, w.List("team", "first"), 1)
		})
	}
}

// TestNamespace_NoAnswer_NothingRemoved: only an answer of the API server ends a namespace.
func TestNamespace_NoAnswer_NothingRemoved(t *testing.T) {
	w := recorded(t)
	w.round(&cluster{err: errors.New("no answer")})
	require.Len(t, w.List("team", "any"), 1)
}

// TestNamespace_ReadBeforeAClaimWasPrepared_NotOfThatClaim: the namespace may have been recreated since it was read.
func TestNamespace_ReadBeforeAClaimWasPrepared_NotOfThatClaim(t *testing.T) {
	w := newWorld(t, false)
	other := claimed
	other.UID = "another"
	w.FollowCluster(stopped(t), meanwhile{&cluster{team: Namespace{UID: "first"}}, func() { require.NoError(t, w.Prepare(other, nil)) }})
	assert.Equal(t, "first", w.claims[uid].NamespaceUID)
	assert.Empty(t, w.claims[other.UID].NamespaceUID)
}

// meanwhile runs a function while the API server is asked.
type meanwhile struct {
	*cluster
	do func()
}

func (m meanwhile) Namespace(ctx context.Context, name string) (Namespace, error) {
	m.do()
	return m.cluster.Namespace(ctx, name)
}

func stopped(t *testing.T) context.Context {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	return ctx
}

// failing is a cluster that fails at first.
type failing struct {
	*cluster
	answers atomic.Bool
}

func (f *failing) Namespace(ctx context.Context, name string) (Namespace, error) {
	found, err := f.cluster.Namespace(ctx, name)
	if !f.answers.Load() {
		err = errors.New("no answer")
	}
	return found, err
}

// TestNamespace_KnownUID_AskedSeldom: a node asks once for each namespace after a claim was prepared, and then every few hours, regardless
// of requests to the node.
func TestNamespace_KnownUID_AskedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(Options{Dir: t.TempDir(), Files: disk.OS{}})
		require.NoError(t, err)
		c := &failing{cluster: &cluster{team: Namespace{UID: "first", Created: time.Unix(1, 0)}}}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			s.FollowCluster(ctx, c)
			close(ended)
		}()
		one, two := claimed, claimed
		two.UID = "another"
		require.NoError(t, s.Prepare(one, nil))
		require.NoError(t, s.Prepare(two, nil))
		time.Sleep(10 * namespaceRetry)
		assert.InDelta(t, 10, c.asked.Swap(0), 2, "one question at a time until there is an answer")
		c.answers.Store(true)
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

// TestAnnounce_FirstClaimToLast_Once: an announcement is written when the first report is added or the last removed, and retried only after
// a failure.
func TestAnnounce_FirstClaimToLast_Once(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(Options{Dir: t.TempDir(), Files: disk.OS{}})
		require.NoError(t, err)
		announced := make(chan bool, 100)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			s.FollowCluster(ctx, &announces{cluster: &cluster{team: Namespace{UID: "first"}}, to: announced, failures: 2})
			close(ended)
		}()
		expect := func(within time.Duration, want ...bool) {
			t.Helper()
			time.Sleep(within)
			var got []bool
			for len(announced) > 0 {
				got = append(got, <-announced)
			}
			assert.Equal(t, want, got)
		}
		expect(4*namespaceRetry, false, false, false)
		other := claimed
		other.UID = "another"
		require.NoError(t, s.Prepare(claimed, nil))
		require.NoError(t, s.Prepare(other, nil))
		expect(2*namespacePause, true)
		require.NoError(t, s.Release(uid))
		require.NoError(t, s.Sweep(holding(other.UID)))
		expect(2 * namespaceCheck)
		require.NoError(t, s.Release(other.UID))
		require.NoError(t, s.Sweep(holding()))
		expect(2*namespaceRetry, false)
		stop()
		<-ended
	})
}

// announces is a cluster that fails to write at first.
type announces struct {
	*cluster
	to       chan bool
	failures int
}

func (a *announces) Announce(_ context.Context, keeps bool) error {
	a.to <- keeps
	if a.failures--; a.failures >= 0 {
		return errors.New("no answer")
	}
	return nil
}
