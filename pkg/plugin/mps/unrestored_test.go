package mps

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// changes returns the reported sets since the last call.
func (n *sharedNode) changes() [][]gpu.UUID {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.unrestored
	n.unrestored = nil
	return now
}

var onA = [][]gpu.UUID{{uuidA}}

// TestUnrestored_StartFails_UntilItSucceeds: the GPU is reported once, also by the next process, which finds it prohibited.
func TestUnrestored_StartFails_UntilItSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		n.r.Reconcile(t.Context(), true)
		assert.Empty(t, n.changes())
		n.exit(daemonA)
		n.failing["start"] = errors.New("no such program")
		n.reports()
		for range 3 {
			time.Sleep(n.r.Reconcile(t.Context(), false))
		}
		assert.Equal(t, onA, n.changes())

		n.r = n.newReconciler() // of the next leader, before it knows the service
		n.r.Reconcile(t.Context(), false)
		assert.Equal(t, onA, n.changes())
		n.reports()
		delete(n.failing, "start")
		time.Sleep(restartMost)
		n.r.Reconcile(t.Context(), false)
		assert.Equal(t, [][]gpu.UUID{nil}, n.changes())
		n.reports()
		n.r.Reconcile(t.Context(), true)
		assert.Empty(t, n.changes())
	})
}

// TestUnrestored_ServiceRestarts_StaysUntilAdmitted: a check that can do nothing meanwhile restores nothing.
func TestUnrestored_ServiceRestarts_StaysUntilAdmitted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		n.exit(daemonA)
		n.failing["ensure"] = errors.New("no server")
		n.reports()
		n.r.Reconcile(t.Context(), false)
		assert.Equal(t, onA, n.changes())
		delete(n.failing, "ensure")
		n.failing["list"] = gpu.ErrMPSUnavailable
		time.Sleep(restartMost)
		n.r.Reconcile(t.Context(), true)
		delete(n.failing, "list")
		n.loseService(false)
		time.Sleep(restartMost)
		n.r.Reconcile(t.Context(), true)
		n.r.Watcher.set(state{})
		time.Sleep(restartMost)
		n.r.Reconcile(t.Context(), true)
		assert.Empty(t, n.changes())
		n.down = nil
		n.reports()
		n.r.Reconcile(t.Context(), false)
		assert.Equal(t, [][]gpu.UUID{nil}, n.changes())
	})
}

// TestUnrestored_ServiceAloneFails_NotReported: its own taint is on all MPS devices of the node.
func TestUnrestored_ServiceAloneFails_NotReported(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	for _, runs := range []bool{true, false} {
		n.loseService(runs)
		n.r.Reconcile(t.Context(), true)
		assert.Empty(t, n.changes())
	}
	n = newSharedNode(t)
	n.exit(daemonA)
	n.failing["list"] = gpu.ErrMPSUnavailable
	n.reports()
	n.r.Reconcile(t.Context(), true)
	assert.Empty(t, n.changes())
}

// TestUnrestored_ExitsAgainAndAgain_OnceThePauseIsLong: a daemon that is started again within seconds taints nothing.
func TestUnrestored_ExitsAgainAndAgain_OnceThePauseIsLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		var reported []bool
		for i := range 6 {
			n.exit(daemonA)
			n.reports()
			wait := n.r.Reconcile(t.Context(), false)
			reported = append(reported, len(n.changes()) > 0)
			if i > 0 {
				time.Sleep(wait)
				n.r.Reconcile(t.Context(), false)
			}
			assert.Equal(t, reported[len(reported)-1], len(n.changes()) > 0, "restored")
		}
		assert.Equal(t, []bool{false, false, false, false, true, true}, reported) // pauses of 1, 2, 4, 8 and 16 s
	})
}

// TestUnrestored_LastClaimUnprepared_Ends: no claim needs the daemon.
func TestUnrestored_LastClaimUnprepared_Ends(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.exit(daemonA)
	n.failing["start"] = errors.New("no such program")
	n.reports()
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, onA, n.changes())
	n.records = []*checkpoint.Record{}
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, [][]gpu.UUID{nil}, n.changes())
	require.NoError(t, n.step().Undo(t.Context(), last(use(0, 0))))
	n.r.Reconcile(t.Context(), false)
	assert.Empty(t, n.changes())
}
