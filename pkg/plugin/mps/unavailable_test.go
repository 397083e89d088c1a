package mps

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// loseService ends the service's answers; its daemon runs on, or is gone with it.
func (n *sharedNode) loseService(daemonRuns bool) {
	if !daemonRuns {
		n.exit(daemonA)
	}
	n.set(func() { n.down = errors.New("connection refused") })
	n.reports()
}

// TestReconcile_ServiceUnavailableDaemonRuns_ModeKept: clients still reach the daemon, which a service that answers again adopts.
func TestReconcile_ServiceUnavailableDaemonRuns_ModeKept(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.loseService(true)
	for range 3 {
		assert.Equal(t, unwatched, n.r.Reconcile(t.Context(), false))
	}
	assert.Empty(t, n.since())
	assert.Zero(t, n.locks, "claims do not wait")
	n.r.Reconcile(t.Context(), true)
	assert.Equal(t, []string{"mode"}, n.since())
	n.modes[string(uuidA)] = gpu.ComputeDefault
	n.r.Reconcile(t.Context(), true)
	assert.Equal(t, []string{"mode", "Exclusive_Process"}, n.since(), "the driver forgot it")
	n.down = nil
	n.r = n.newReconciler() // of the next leader
	n.reports()
	n.r.Reconcile(t.Context(), false)
	assert.Empty(t, n.since())
	assert.Empty(t, n.events(), "the service is reported for the node")

	n.r.Process = func(int) (uint64, bool) { return 4711, true } // another process uses its pid
	n.loseService(true)
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, gpu.ComputeProhibited, n.mode(string(uuidA)))
}

// TestReconcile_ServiceUnavailableDaemonGone_ProhibitedUntilItAnswers: processes that find no daemon do not use the GPU without MPS.
func TestReconcile_ServiceUnavailableDaemonGone_ProhibitedUntilItAnswers(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.loseService(false)
	for range 3 {
		assert.Equal(t, period, n.r.Reconcile(t.Context(), false))
	}
	assert.Equal(t, []string{"Prohibited"}, n.since())
	assert.Empty(t, n.events(), "the service is reported for the node")
	n.down = nil
	n.r = n.newReconciler() // of the next leader
	n.reports()
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, []string{"list", "mode", "start", "Exclusive_Process", "ensure"}, n.since())
	assert.Equal(t, []string{"restarted aaaaaaaa with 2 shares: exit status 1"}, n.events())
	assert.Equal(t, gpu.ComputeExclusiveProcess, n.mode(string(uuidA)))
}

// TestReconcile_ServiceUnavailableModeReset_ProhibitedAgain: a driver without persistence mode forgets it, and so does a GPU that is reset.
func TestReconcile_ServiceUnavailableModeReset_ProhibitedAgain(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.loseService(false)
	n.r.Reconcile(t.Context(), false)
	n.since()
	n.r.Reconcile(t.Context(), true)
	assert.Equal(t, []string{"mode"}, n.since())
	n.modes[string(uuidA)] = gpu.ComputeDefault
	n.r.Reconcile(t.Context(), true)
	assert.Equal(t, []string{"mode", "Prohibited"}, n.since())
	n.r = n.newReconciler() // of the next leader
	n.reports()
	n.modes[string(uuidA)] = gpu.ComputeDefault
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, gpu.ComputeProhibited, n.mode(string(uuidA)))
}

// TestReconcile_ModeResetWhileUnavailable_ProhibitedBeforeStart: no process takes the device between the answer of the service and the daemon.
func TestReconcile_ModeResetWhileUnavailable_ProhibitedBeforeStart(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.loseService(false)
	n.r.Reconcile(t.Context(), false)
	require.Equal(t, gpu.ComputeProhibited, n.mode(string(uuidA)))
	n.since()
	n.modes[string(uuidA)] = gpu.ComputeDefault
	n.down = nil
	n.reports()
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, []string{"list", "mode", "Prohibited", "start", "Exclusive_Process", "ensure"}, n.since())
}

// TestReconcile_ServiceUnavailableDriverLoadedAgain_ModeRestored: a mode that was set in the present load is undone at the end.
func TestReconcile_ServiceUnavailableDriverLoadedAgain_ModeRestored(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.load, n.modes[string(uuidA)] = "load-2", gpu.ComputeDefault
	n.loseService(false)
	n.r.Reconcile(t.Context(), false)
	require.Equal(t, gpu.ComputeProhibited, n.mode(string(uuidA)))
	require.ErrorIs(t, n.step().Undo(t.Context(), last(use(0, 0))), gpu.ErrMPSUnavailable)
	n.down = nil
	require.NoError(t, n.step().Undo(t.Context(), last(use(0, 0))))
	assert.Equal(t, gpu.ComputeDefault, n.mode(string(uuidA)))
	assert.Empty(t, n.files(t))
	_, err := n.step().Do(t.Context(), use(0, 0))
	require.NoError(t, err)
}

// TestReconcile_ServiceUnavailableGPULost_TriedAgain: a mode that could not be prohibited is.
func TestReconcile_ServiceUnavailableGPULost_TriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		n.failing["set"] = gpu.ErrLost
		n.loseService(false)
		wait := n.r.Reconcile(t.Context(), false)
		assert.Equal(t, restartFirst, wait)
		assert.Len(t, n.events(), 1)
		delete(n.failing, "set")
		time.Sleep(wait)
		n.r.Reconcile(t.Context(), false)
		assert.Equal(t, gpu.ComputeProhibited, n.mode(string(uuidA)))
	})
}

// TestReconcile_ModeResetServerExited_ExclusiveBeforeServer: no server starts on a device that other processes may use.
func TestReconcile_ModeResetServerExited_ExclusiveBeforeServer(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.set(func() { n.daemons[daemonA].Servers = nil })
	n.modes[string(uuidA)] = gpu.ComputeDefault
	n.reports()
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, []string{"list", "mode", "Exclusive_Process", "ensure"}, n.since())
}
