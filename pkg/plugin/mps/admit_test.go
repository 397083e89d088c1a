package mps

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// keptOf returns the saved state of the GPU.
func (w *world) keptOf(t *testing.T) saved {
	t.Helper()
	kept, err := w.service("boot-1").Store.get(daemonA)
	require.NoError(t, err)
	require.NotNil(t, kept)
	return *kept
}

// TestReconcile_ServerDoesNotStart_ProhibitedAndAdmittedLater: a daemon that runs without accepting clients is not taken for one that does.
func TestReconcile_ServerDoesNotStart_ProhibitedAndAdmittedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		n.exit(daemonA)
		n.failing["ensure"] = errors.New("no server")
		n.reports()
		n.r.Reconcile(t.Context(), false)
		assert.Equal(t, []string{"Prohibited", "list", "start", "Exclusive_Process", "ensure", "Prohibited"}, n.since())
		assert.Equal(t, gpu.ComputeProhibited, n.mode(string(uuidA)))
		assert.True(t, n.keptOf(t).Prohibited)
		assert.Equal(t, 102, n.keptOf(t).PID, "it can be found without the service")
		n.r = n.newReconciler() // of the next leader
		n.reports()
		delete(n.failing, "ensure")
		time.Sleep(restartFirst)
		n.r.Reconcile(t.Context(), false)
		assert.Equal(t, []string{"list", "start", "Exclusive_Process", "ensure"}, n.since())
		assert.Equal(t, gpu.ComputeExclusiveProcess, n.mode(string(uuidA)))
		assert.False(t, n.keptOf(t).Prohibited)
	})
}

// TestStep_FurtherShareServerDoesNotStart_Prohibited until a share succeeds.
func TestStep_FurtherShareServerDoesNotStart_Prohibited(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	step := n.step()
	n.exit(daemonA)
	step.Watcher.set(state{current: true, daemons: []gpu.MPSDaemon{*n.daemons[daemonA]}})
	n.failing["ensure"] = errors.New("no server")
	_, err := step.Do(t.Context(), use(0, 0))
	require.ErrorContains(t, err, "no server")
	assert.Equal(t, gpu.ComputeProhibited, n.mode(string(uuidA)))
	delete(n.failing, "ensure")
	_, err = n.step().Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	assert.Equal(t, gpu.ComputeExclusiveProcess, n.mode(string(uuidA)))
	assert.False(t, n.keptOf(t).Prohibited)
}

// TestStep_FirstShareKilledBeforeServer_Admitted by the next share or the reconciler, whatever the mode was before.
func TestStep_FirstShareKilledBeforeServer_Admitted(t *testing.T) {
	t.Parallel()
	for _, before := range []gpu.ComputeMode{gpu.ComputeDefault, gpu.ComputeExclusiveProcess} {
		n := &sharedNode{world: newWorld(t)}
		n.modes[string(uuidA)] = before
		n.failing["ensure"] = errors.New("killed")
		_, err := n.step().Do(t.Context(), use(0, 0))
		require.ErrorContains(t, err, "killed")
		assert.True(t, n.keptOf(t).Prohibited, before)
		delete(n.failing, "ensure")
		n.since()
		_, err = n.step().Do(t.Context(), use(0, 0))
		require.NoError(t, err)
		assert.Equal(t, []string{"start", "Exclusive_Process", "ensure"}, n.since())
		assert.False(t, n.keptOf(t).Prohibited)
		require.NoError(t, n.step().Undo(t.Context(), last(use(0, 0))))
		assert.Equal(t, before, n.mode(string(uuidA)))
	}
}

// TestReconcile_ServerExited_StartedAgain, at once and then with back-off.
func TestReconcile_ServerExited_StartedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		exits := func() time.Duration {
			n.set(func() { n.daemons[daemonA].Servers = nil })
			n.reports()
			return n.r.Reconcile(t.Context(), false)
		}
		exits()
		assert.Equal(t, []string{"list", "mode", "ensure"}, n.since())
		assert.Len(t, n.daemons[daemonA].Servers, 1)
		assert.Empty(t, n.events())
		assert.Equal(t, restartFirst, exits())
		assert.Equal(t, []string{"list"}, n.since())
		assert.Equal(t, []string{
			"failed aaaaaaaa: starting the server of MPS control daemon aaaaaaaa of GPU " + string(uuidA) + " again: it restarts too often",
		}, n.events())
		time.Sleep(restartFirst)
		n.r.Reconcile(t.Context(), false)
		assert.Len(t, n.daemons[daemonA].Servers, 1)
		n.reports()
		n.since()
		time.Sleep(2 * restartFirst)
		n.r.Reconcile(t.Context(), false)
		assert.Empty(t, n.since())
	})
}

// TestReconcile_LockTaken_NotReported: the device works, and is checked when the lock is free.
func TestReconcile_LockTaken_NotReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		n.exit(daemonA)
		n.reports()
		lock := n.r.WithGPULock
		n.r.WithGPULock = func(ctx context.Context, _ gpu.UUID, _ func(ctx context.Context) error) error {
			<-ctx.Done()
			return ctx.Err()
		}
		n.r.Reconcile(t.Context(), true)
		assert.Empty(t, n.events())
		n.r.WithGPULock = lock
		n.r.Reconcile(t.Context(), false)
		assert.Equal(t, []string{"restarted aaaaaaaa with 2 shares: exit status 1"}, n.events())
	})
}

// endingContext ends the context of a call in it, as a deadline that passes while the server starts.
type endingContext struct {
	*world
	end context.CancelFunc
}

func (e endingContext) Ensure(context.Context, gpu.MPSDaemonID, gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	e.end()
	return gpu.MPSDaemon{}, context.Canceled
}

// TestStep_ContextEndsWhileServerStarts_Prohibited: the mode is set although the deadline of the call has passed.
func TestStep_ContextEndsWhileServerStarts_Prohibited(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.exit(daemonA)
	step := n.step()
	ctx, end := context.WithCancel(t.Context())
	step.Daemons = endingContext{n.world, end}
	_, err := step.Do(ctx, use(0, 0))
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, gpu.ComputeProhibited, n.mode(string(uuidA)))
}
