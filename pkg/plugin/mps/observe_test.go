package mps

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestReconcile_ServerRestarted_Reported once, whatever has started it: the reconciler, a claim that is prepared, or the daemon itself.
func TestReconcile_ServerRestarted_Reported(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	seen := func(servers ...int) []string {
		n.set(func() { n.daemons[daemonA].Servers = servers })
		n.reports()
		n.r.Reconcile(t.Context(), false)
		return n.events()
	}
	assert.Empty(t, seen(7), "it ran before the process did")
	assert.Empty(t, seen(), "the reconciler starts it")
	n.reports()
	n.r.Reconcile(t.Context(), false)
	const event = "server of aaaaaaaa restarted with 2 shares"
	assert.Equal(t, []string{event}, n.events())
	assert.Equal(t, []string{event}, seen(8), "something else has")
	assert.Empty(t, seen(8))

	n.r = n.newReconciler() // without the delay after a start
	n.reports()
	n.r.Reconcile(t.Context(), false)
	n.exit(daemonA)
	n.reports()
	n.r.Reconcile(t.Context(), false)
	n.reports()
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, []string{"restarted aaaaaaaa with 2 shares: exit status 1"}, n.events(), "a server goes with its daemon")
	n.set(func() { n.daemons[daemonA].MultiUser = false })
	seen(9)
	assert.Empty(t, seen(10), "a server for one user exits with its last client")
}

// exitsAtEnsure is a service that notices only with a request for the server that the daemon has exited.
type exitsAtEnsure struct{ *world }

func (e exitsAtEnsure) Ensure(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	e.exit(id)
	return e.world.Ensure(ctx, id, spec)
}

// TestReconcile_DaemonRestarted_ReportedOnce, whatever has started it again, and with its cause.
func TestReconcile_DaemonRestarted_ReportedOnce(t *testing.T) {
	t.Parallel()
	for by, restarts := range map[string]func(t *testing.T, n *sharedNode){
		"a claim that is prepared": func(t *testing.T, n *sharedNode) {
			n.exit(daemonA)
			step := n.step()
			step.Watcher.set(state{current: true, daemons: []gpu.MPSDaemon{*n.daemons[daemonA]}})
			_, err := step.Do(t.Context(), use(0, 0))
			require.NoError(t, err)
		},
		"a request for its server": func(t *testing.T, n *sharedNode) {
			n.set(func() { n.daemons[daemonA].Servers = nil })
			n.r.Daemons = exitsAtEnsure{n.world}
			n.reports()
			n.r.Reconcile(t.Context(), false)
			n.r.Daemons = n.world
		},
		"a start without a server": func(t *testing.T, n *sharedNode) {
			n.exit(daemonA)
			n.failing["ensure"] = errors.New("no server")
			n.reports()
			n.r.Reconcile(t.Context(), false)
			assert.Len(t, n.events(), 1, "it cannot be used")
			delete(n.failing, "ensure")
		},
	} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			n := newSharedNode(t)
			n.r.Reconcile(t.Context(), false)
			restarts(t, n)
			for range 2 {
				n.reports()
				n.r.Reconcile(t.Context(), false)
			}
			assert.Equal(t, []string{"restarted aaaaaaaa with 2 shares: exit status 1"}, n.events())
			assert.EqualValues(t, 1, n.r.Counts.Restarts())
			assert.Equal(t, 102, n.daemons[daemonA].PID)
		})
	}
}

// TestReconcile_DaemonStoppedForDriver_NotReported: it has not exited by itself.
func TestReconcile_DaemonStoppedForDriver_NotReported(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.r.Reconcile(t.Context(), false)
	n.set(func() { n.daemons[daemonA].Outdated = true })
	for range 2 {
		n.reports()
		n.r.Reconcile(t.Context(), false)
	}
	assert.Equal(t, 102, n.daemons[daemonA].PID)
	assert.Empty(t, n.events())
}

// TestReconcile_ClaimIsPrepared_ReportedSoonAfter: the reconciler learns of the daemon before the claim counts as prepared, perhaps by another
// process of the node.
func TestReconcile_ClaimIsPrepared_ReportedSoonAfter(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.daemons[daemonA].MultiUser = false
	for _, r := range n.records {
		r.State = checkpoint.Intent
	}
	n.reports()
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 50, 50} {
		assert.Equal(t, want*preparingFirst, n.r.Reconcile(t.Context(), false))
	}
	assert.Empty(t, n.events())
	n.records[0].State = checkpoint.Done
	assert.Equal(t, period, n.r.Reconcile(t.Context(), false))
	assert.Equal(t, []string{"single user aaaaaaaa"}, n.events())
	n.records[0].State = checkpoint.Releasing
	assert.Equal(t, preparingFirst, n.r.Reconcile(t.Context(), false))
}

// TestReconcile_LimitsRestoredMeanwhile_NotSetAgain: a claim has changed them while they were read.
func TestReconcile_LimitsRestoredMeanwhile_NotSetAgain(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	own := n.limits[daemonA]
	n.limits[daemonA] = gpu.MPSLimitsInForce{}
	lock := n.r.WithGPULock
	n.r.WithGPULock = func(ctx context.Context, id gpu.UUID, do func(ctx context.Context) error) error {
		n.set(func() { n.limits[daemonA] = own })
		return lock(ctx, id, do)
	}
	n.r.Reconcile(t.Context(), true)
	assert.Equal(t, 1, n.locks)
	assert.NotContains(t, n.since(), "restore")
	assert.Empty(t, n.events())
}

// TestReconcile_KilledBeforeModeWasProhibited_ProhibitedFirst: the process before saved the mode before it set it.
func TestReconcile_KilledBeforeModeWasProhibited_ProhibitedFirst(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.exit(daemonA)
	kept, err := n.r.Store.get(daemonA)
	require.NoError(t, err)
	kept.Prohibited = true
	require.NoError(t, n.r.Store.put(daemonA, *kept))
	n.reports()
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, []string{"list", "mode", "Prohibited", "start", "Exclusive_Process", "ensure"}, n.since())
}
