package mps

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// watched runs a Watcher of the world in a bubble of fake time.
type watched struct {
	*world

	watcher *Watcher
	needed  bool
	answers []Answer
	changes []bool // whether the service was unavailable
}

func (n *watched) run(t *testing.T) {
	t.Helper()
	n.world = newWorld(t)
	n.watcher = NewWatcher(n.world)
	of := Watched{
		Needed: func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.needed },
		Changed: func(before, now Answer) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.answers = append(n.answers, now)
			if (before.Unavailable == nil) != (now.Unavailable == nil) {
				n.changes = append(n.changes, now.Unavailable != nil)
			}
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.watcher.Run(ctx, of) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
}

// reported are the answers so far.
func (n *watched) reported() []Answer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.answers)
}

// changed are the changes so far.
func (n *watched) changed() []bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.changes)
}

// after passes fake time and waits until the watcher is idle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestWatcher_NodeWithoutShares_NotAsked: as long as nothing advertises MPS.
func TestWatcher_NodeWithoutShares_NotAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &watched{}
		n.run(t)
		n.set(func() { n.down = errors.New("no such file") })
		after(time.Hour)
		assert.Empty(t, n.since())
		assert.Empty(t, n.changed())
		require.NoError(t, n.watcher.Unavailable())

		n.set(func() { n.needed = true })
		n.watcher.Wake()
		after(0)
		assert.NotEmpty(t, n.since(), "it does not wait for the next check")
		after(grace + askMost)
		require.ErrorIs(t, n.watcher.Unavailable(), gpu.ErrMPSUnavailable)
		n.set(func() { n.needed = false })
		after(askMost)
		require.NoError(t, n.watcher.Unavailable())
		assert.Equal(t, []bool{true, false}, n.changed())
		assert.False(t, n.watcher.Answers())
		n.since()
		after(time.Hour)
		assert.Empty(t, n.since())
	})
}

// TestBegin_ServiceDoesNotAnswer_UnavailableAtOnce: it is asked once, and a service that hangs delays the start for beginTime alone.
func TestBegin_ServiceDoesNotAnswer_UnavailableAtOnce(t *testing.T) {
	t.Parallel()
	for name, daemons := range map[string]func(*world) Daemons{
		"no socket":          func(w *world) Daemons { w.down = fs.ErrNotExist; return w },
		"connection refused": func(w *world) Daemons { w.down = syscall.ECONNREFUSED; return w },
		"it hangs":           func(w *world) Daemons { return hanging{w} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, changes := newWorld(t), []Answer{}
				watcher, began := NewWatcher(daemons(w)), time.Now()
				of := Watched{Needed: func() bool { return true }, Changed: func(_, now Answer) { changes = append(changes, now) }}
				watcher.Begin(t.Context(), of)
				assert.LessOrEqual(t, time.Since(began), beginTime)
				require.ErrorIs(t, watcher.Unavailable(), gpu.ErrMPSUnavailable)
				assert.Equal(t, []Answer{{Asked: true, Unavailable: watcher.Unavailable()}}, changes)
				assert.LessOrEqual(t, len(w.since()), 1)
				ctx, stop := context.WithTimeout(t.Context(), grace)
				defer stop()
				require.NoError(t, watcher.Run(ctx, of))
				assert.Len(t, changes, 1, "it is still unavailable")
			})
		})
	}
}

// TestWatcher_NoControlDaemonCanBeStarted_ProblemReported as long as it is so, and again when it is another one. The daemons are known
// meanwhile.
func TestWatcher_NoControlDaemonCanBeStarted_ProblemReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, began := newWorld(t), []Answer{}
		w.problem = "no programs"
		NewWatcher(w).Begin(t.Context(), Watched{
			Needed: func() bool { return true }, Changed: func(_, now Answer) { began = append(began, now) },
		})
		assert.Equal(t, []Answer{{Asked: true, Problem: "no programs"}}, began)

		n := &watched{needed: true}
		n.run(t)
		after(0)
		problem := func(text string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.problem = text // which changes no revision
		}
		problem("no programs")
		n.set(func() { n.world.run(daemonA, gpu.MPSDaemonSpec{GPU: uuidA}) })
		after(0)
		_, known := n.watcher.Daemon(daemonA)
		assert.True(t, known)
		require.NoError(t, n.watcher.Unavailable())
		problem("no driver")
		after(askMost)
		problem("")
		after(askMost)
		assert.Equal(t, []Answer{{Asked: true}, {Asked: true, Problem: "no programs"}, {Asked: true, Problem: "no driver"}, {Asked: true}}, n.reported())
		assert.True(t, n.reported()[3].Usable())
		assert.False(t, n.reported()[2].Usable())
	})
}

// hanging is a service that does not answer.
type hanging struct{ *world }

func (hanging) Probe(ctx context.Context) (problem string, err error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func (hanging) Daemons(ctx context.Context, _ int64) ([]gpu.MPSDaemon, int64, error) {
	<-ctx.Done()
	return nil, 0, ctx.Err()
}

// TestBegin_ServiceAnswers_DaemonsKnown, and a node without shares does not ask.
func TestBegin_ServiceAnswers_DaemonsKnown(t *testing.T) {
	t.Parallel()
	w, needed, changes := newWorld(t), false, []Answer{}
	w.run(daemonA, gpu.MPSDaemonSpec{GPU: uuidA})
	watcher := NewWatcher(w)
	of := Watched{Needed: func() bool { return needed }, Changed: func(_, now Answer) { changes = append(changes, now) }}
	watcher.Begin(t.Context(), of)
	assert.Empty(t, w.since())
	assert.Empty(t, changes)
	needed = true
	watcher.Begin(t.Context(), of)
	assert.Equal(t, []string{"list"}, w.since())
	assert.Equal(t, []Answer{{Asked: true}}, changes)
	_, known := watcher.Daemon(daemonA)
	assert.True(t, known)
	require.NoError(t, watcher.Unavailable())
}

// TestRun_SharesAdvertisedLater_AskedOnceBeforeKnown: until then nothing is reported, and a service that hangs is unavailable after beginTime.
func TestRun_SharesAdvertisedLater_AskedOnceBeforeKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &watched{}
		n.run(t)
		for _, hangs := range []bool{true, false} {
			after(0)
			var revision int64
			n.set(func() {
				n.answers, revision = nil, n.revision
				if n.needed = true; hangs {
					n.revision = -1 << 40 // no answer
				}
			})
			n.watcher.Wake()
			after(beginTime - 1)
			if hangs {
				assert.Empty(t, n.reported())
			}
			after(1)
			answers := n.reported()
			require.Len(t, answers, 1)
			assert.True(t, answers[0].Asked)
			assert.Equal(t, hangs, answers[0].Unavailable != nil)
			n.set(func() { n.needed, n.revision = false, revision+1 })
			after(2 * pollTime)
			answers = n.reported()
			assert.Equal(t, Answer{}, answers[len(answers)-1], "the next shares are not advertised before it is asked again")
		}
	})
}

// TestWatcher_ServiceRestarts_UnavailableAfterGrace: a restart takes less than a second and is not reported.
func TestWatcher_ServiceRestarts_UnavailableAfterGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &watched{needed: true}
		n.run(t)
		after(0)
		assert.True(t, n.watcher.Answers())
		n.set(func() { n.world.run(daemonA, gpu.MPSDaemonSpec{GPU: uuidA}) })
		after(0)
		d, known := n.watcher.Daemon(daemonA)
		assert.True(t, known)
		assert.Equal(t, gpu.MPSRunning, d.State)
		assert.Equal(t, map[gpu.MPSDaemonState]int{gpu.MPSRunning: 1}, n.watcher.States())

		n.set(func() { n.down = errors.New("connection refused") })
		after(grace - time.Second)
		require.NoError(t, n.watcher.Unavailable())
		_, known = n.watcher.Daemon(daemonA)
		assert.False(t, known, "it may have died meanwhile")
		n.set(func() { n.down, n.revision = nil, 0 }) // it counts from the start
		after(askMost)
		assert.True(t, n.watcher.Answers())
		assert.Empty(t, n.changed())

		n.set(func() { n.down = errors.New("connection refused") })
		after(grace + askMost)
		require.ErrorIs(t, n.watcher.Unavailable(), gpu.ErrMPSUnavailable)
		assert.Equal(t, []bool{true}, n.changed())
		n.since()
		after(time.Minute)
		assert.LessOrEqual(t, len(n.since()), int(time.Minute/askMost)+1)
		n.set(func() { n.down = nil })
		after(askMost)
		assert.Equal(t, []bool{true, false}, n.changed())
		_, known = n.watcher.Daemon(daemonA)
		assert.True(t, known)
	})
}

// TestWatcher_ServiceHangs_Unavailable: a listing that waits for a change ends with an error.
func TestWatcher_ServiceHangs_Unavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &watched{needed: true}
		n.run(t)
		after(0)
		assert.True(t, n.watcher.Answers())
		n.set(func() { n.revision = -1 << 40 }) // no answer from now on
		n.since()
		after(2*pollTime + grace)
		require.ErrorIs(t, n.watcher.Unavailable(), gpu.ErrMPSUnavailable)
		require.ErrorIs(t, n.watcher.Unavailable(), context.DeadlineExceeded)
		assert.LessOrEqual(t, len(n.since()), 6, "one call at a time")
	})
}

// TestRun_DaemonDies_RestartedWithoutWaiting, and mode and limits are checked every period.
func TestRun_DaemonDies_RestartedWithoutWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := n.run(ctx)
		after(0)
		n.since()
		n.exit(daemonA)
		after(0)
		assert.Equal(t, gpu.ComputeExclusiveProcess, n.mode(string(uuidA)))
		assert.Len(t, n.events(), 1)
		n.set(func() { n.modes[string(uuidA)] = gpu.ComputeDefault })
		after(period)
		assert.Equal(t, gpu.ComputeExclusiveProcess, n.mode(string(uuidA)))
		n.set(func() { n.down = errors.New("connection refused") })
		after(grace + askMost)
		assert.Equal(t, gpu.ComputeExclusiveProcess, n.mode(string(uuidA)), "the daemon runs on")
		n.exit(daemonA)
		after(unwatched)
		assert.Equal(t, gpu.ComputeProhibited, n.mode(string(uuidA)))
		n.set(func() { n.down = nil })
		after(askMost)
		assert.Equal(t, gpu.ComputeExclusiveProcess, n.mode(string(uuidA)))
		assert.Len(t, n.events(), 1)
		n.since()
		after(10 * period)
		calls := n.since()
		assert.LessOrEqual(t, len(calls), 10*5, calls)
		stop()
		ended()
	})
}

// TestWatcher_NoSocket_UnavailableAtOnce: a service that has never run does not restart, and the node must not advertise shares that cannot
// be used.
func TestWatcher_NoSocket_UnavailableAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &watched{}
		n.run(t)
		n.set(func() { n.needed, n.down = true, &fs.PathError{Op: "dial", Path: "mpsd.sock", Err: syscall.ENOENT} })
		n.watcher.Wake()
		after(0)
		require.ErrorIs(t, n.watcher.Unavailable(), gpu.ErrMPSUnavailable)
		assert.Equal(t, []bool{true}, n.changed())
		n.set(func() { n.down = nil })
		after(askMost)
		assert.Equal(t, []bool{true, false}, n.changed())
	})
}
