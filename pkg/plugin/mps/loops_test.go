package mps

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	// failTime is how long a port fails, and mostRounds how often a loop may try meanwhile.
	failTime   = 10 * time.Second
	mostRounds = 40
)

// countedDisk counts the rounds of a reconciler, each of which lists the saved devices. It ends a loop that does not wait: time stands
// still for it.
type countedDisk struct {
	disk.OS
	rounds *atomic.Int64
	stop   context.CancelFunc
	fails  *atomic.Bool
}

func (d countedDisk) List(dir string) ([]string, error) {
	if d.rounds.Add(1) > 100*mostRounds {
		d.stop()
	}
	if d.fails.Load() {
		return nil, errFails
	}
	return d.OS.List(dir)
}

var errFails = errors.New("input/output error")

// ports are the dependencies of a reconciler that can fail. The reconciler must report some failures by an Event, and the watcher the
// failures of the service.
var ports = map[string]struct {
	fail   func(n *sharedNode, disk countedDisk)
	silent bool
}{
	"none":         {fail: func(*sharedNode, countedDisk) {}, silent: true},
	"saved state":  {fail: func(_ *sharedNode, d countedDisk) { d.fails.Store(true) }},
	"records":      {fail: func(n *sharedNode, _ countedDisk) { n.unread = errFails }},
	"lock":         {fail: func(n *sharedNode, _ countedDisk) { n.failing["lock"] = errFails }},
	"driver":       {fail: func(n *sharedNode, _ countedDisk) { n.failing["driver"] = errFails }},
	"mode":         {fail: func(n *sharedNode, _ countedDisk) { n.failing["mode"] = errFails }},
	"set mode":     {fail: func(n *sharedNode, _ countedDisk) { n.failing["set"] = errFails }},
	"start":        {fail: func(n *sharedNode, _ countedDisk) { n.failing["start"] = errFails }},
	"server":       {fail: func(n *sharedNode, _ countedDisk) { n.failing["ensure"] = errFails }},
	"limits":       {fail: func(n *sharedNode, _ countedDisk) { n.failing["limits"] = errFails }, silent: true}, // which are read now and then
	"listing":      {fail: func(n *sharedNode, _ countedDisk) { n.failing["list"] = errFails }, silent: true},
	"service":      {fail: func(n *sharedNode, _ countedDisk) { n.down = errors.New("connection refused") }, silent: true},
	"service hang": {fail: func(n *sharedNode, _ countedDisk) { n.revision = -1 << 40 }, silent: true},
}

// TestRun_PortFails_FewRounds: a reconciler and a watcher that cannot do anything wait before they try again, whatever has failed before, and
// each failure is reported or counted.
func TestRun_PortFails_FewRounds(t *testing.T) {
	t.Parallel()
	for name, port := range ports {
		for _, died := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, daemon died %v", name, died), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					n := newSharedNode(t)
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					counted := countedDisk{rounds: &atomic.Int64{}, stop: stop, fails: &atomic.Bool{}}
					n.r.Store = NewStore(counted, n.dir, "boot-1")
					n.failLock()
					ended := n.run(ctx)
					after(0)
					if died { // its back-off is over, and the service may be silent then
						n.set(func() { n.failing["start"] = errors.New("no such program") })
						n.exit(daemonA)
						after(2*restartFirst + restartFirst/2)
						n.set(func() { delete(n.failing, "start") })
					}
					n.since()
					n.events()
					rounds, failures := counted.rounds.Load(), n.r.Counts.Failures()
					n.set(func() { port.fail(n, counted) })
					after(failTime)
					require.NoError(t, ctx.Err(), "it does not wait")
					assert.LessOrEqual(t, counted.rounds.Load()-rounds, int64(mostRounds))
					assert.LessOrEqual(t, len(n.since()), 6*mostRounds)
					if died && !port.silent {
						assert.NotEqual(t, failures, n.r.Counts.Failures(), "counted")
						assert.NotEmpty(t, n.events(), "reported")
					}
					stop()
					ended()
				})
			})
		}
	}
}

// failLock makes the lock of the GPU fail when the test says so.
func (n *sharedNode) failLock() {
	lock := n.r.WithGPULock
	n.r.WithGPULock = func(ctx context.Context, id gpu.UUID, do func(ctx context.Context) error) error {
		n.mu.Lock()
		err := n.failing["lock"]
		n.mu.Unlock()
		if err != nil {
			return err
		}
		return lock(ctx, id, do)
	}
}

// run runs watcher and reconciler until the context ends; ended waits for both.
func (n *sharedNode) run(ctx context.Context) (ended func()) {
	watching, reconciling := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watching)
		_ = n.r.Watcher.Run(ctx, Watched{Needed: func() bool { return true }, Changed: func(_, _ Answer) {}})
	}()
	go func() { defer close(reconciling); n.r.Run(ctx) }()
	return func() { <-watching; <-reconciling }
}

// TestReconcile_Unreadable_ReportedOnceAndReadAgain, and the knowledge about devices stays.
func TestReconcile_Unreadable_ReportedOnceAndReadAgain(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.unread = errFails
	for range 2 {
		assert.Equal(t, unreadable, n.r.Reconcile(t.Context(), true))
	}
	assert.Equal(t, []string{"unread input/output error"}, n.events())
	assert.EqualValues(t, 2, n.r.Counts.Failures())
	n.unread = nil
	n.r.Reconcile(t.Context(), true)
	n.unread = errFails
	n.r.Reconcile(t.Context(), true)
	assert.Equal(t, []string{"unread input/output error"}, n.events(), "it is new again")
}

// TestReconcile_LockFails_ReportedAndTriedAgain after a back-off, and not only with the next full check.
func TestReconcile_LockFails_ReportedAndTriedAgain(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.exit(daemonA)
	n.failLock()
	n.failing["lock"] = errFails
	n.reports()
	assert.LessOrEqual(t, n.r.Reconcile(t.Context(), false), restartFirst)
	assert.Equal(t, []string{"failed aaaaaaaa: input/output error"}, n.events())
	assert.EqualValues(t, 1, n.r.Counts.Failures())
}

// restless is a service that answers listings at once, though nothing has changed.
type restless struct{ *world }

func (r restless) Daemons(ctx context.Context, _ int64) ([]gpu.MPSDaemon, int64, error) {
	return r.world.Daemons(ctx, 0)
}

// TestWatcher_ListingDoesNotWait_AskedNowAndThen: a listing that returns without a change is not repeated at once.
func TestWatcher_ListingDoesNotWait_AskedNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, stop := context.WithTimeout(t.Context(), failTime)
		defer stop()
		needed := 0
		require.NoError(t, NewWatcher(restless{w}).Run(ctx, Watched{
			Needed: func() bool {
				if needed++; needed > 100*mostRounds {
					stop()
				}
				return true
			},
			Changed: func(_, _ Answer) {},
		}))
		assert.LessOrEqual(t, len(w.since()), int(failTime/askMost)+2)
	})
}

// TestReconcile_LimitsUnreadable_Reported, and counted.
func TestReconcile_LimitsUnreadable_Reported(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.failing["limits"] = errFails
	n.r.Reconcile(t.Context(), true)
	assert.Equal(t, []string{"failed aaaaaaaa: restoring the limits of MPS control daemon aaaaaaaa of GPU " + string(uuidA) + ": input/output error"}, n.events())
	assert.EqualValues(t, 1, n.r.Counts.Failures())
}
