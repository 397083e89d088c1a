package mps

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestStep_ServiceDiesBeforeItAnswers_UndoneLater: the daemon may run, and is stopped once the service answers again. Until then the cleanup is
// pending, and the compute mode stays.
func TestStep_ServiceDiesBeforeItAnswers_UndoneLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := w.step()
	w.mute = true
	_, err := step.Do(t.Context(), use(0, 0))
	require.ErrorIs(t, err, gpu.ErrMPSUnavailable)
	require.ErrorIs(t, err, gpu.ErrTimeout, "it is retried")
	require.ErrorContains(t, err, "mps.enabled")
	assert.Equal(t, gpu.ComputeDefault, w.mode(string(uuidA)))
	require.ErrorContains(t, step.Undo(t.Context(), last(use(0, 0))), "whether it is stopped, and its files are removed, is not known")
	w.down = nil
	require.NoError(t, step.Undo(t.Context(), last(use(0, 0))))
	assert.Empty(t, w.daemons)

	_, err = step.Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	w.down = errors.New("connection refused")
	err = step.Undo(t.Context(), last(use(0, 0)))
	require.EqualError(t, err, "stopping MPS control daemon aaaaaaaa of GPU "+string(uuidA)+": it runs with pid 102 on the host: the MPS service does not answer: "+
		"connection refused; MPS shares need the MPS service on this node, which runs where the chart value mps.enabled is true")
	assert.Equal(t, gpu.ComputeExclusiveProcess, w.mode(string(uuidA)))
}

// TestUndo_ServicePodReplaced_PendingUntilItAnswers: the daemon is gone with the service, and its directory contains the files of its
// clients.
func TestUndo_ServicePodReplaced_PendingUntilItAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := w.step()
	_, err := step.Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	w.daemons[daemonA].State, w.down = gpu.MPSDead, errors.New("connection refused")
	for _, down := range []error{w.down, fs.ErrNotExist} { // the directory of the socket may be removed with the service
		w.down = down
		require.ErrorIs(t, step.Undo(t.Context(), last(use(0, 0))), gpu.ErrMPSUnavailable)
		assert.NotEmpty(t, w.files(t), "it is remembered")
	}
	w.down = nil
	w.since()
	require.NoError(t, step.Undo(t.Context(), last(use(0, 0))))
	assert.Equal(t, []string{"stop", "Default"}, w.since())
	assert.Empty(t, w.files(t))
}

// TestUndo_NoServiceSinceBoot_NothingLeft: a claim that failed as there is none does not keep the GPU.
func TestUndo_NoServiceSinceBoot_NothingLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.down = fs.ErrNotExist
	_, err := w.step().Do(t.Context(), use(0, 0))
	require.ErrorIs(t, err, gpu.ErrMPSUnavailable)
	require.NoError(t, w.step().Undo(t.Context(), last(use(0, 0))))
}

func TestUndo_AnotherProcessHasPIDOfDaemon_PIDNotNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := w.step()
	_, err := step.Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	step.Process = func(int) (uint64, bool) { return 4711, true }
	w.down = errors.New("connection refused")
	err = step.Undo(t.Context(), last(use(0, 0)))
	require.ErrorIs(t, err, gpu.ErrMPSUnavailable)
	assert.NotContains(t, err.Error(), "it runs with pid")
}

// TestStep_FirstShare_DaemonOfEarlierClaimReplaced, by the service or, with an older one, by the plugin. One that was started for the same request,
// whose answer was lost, stays.
func TestStep_FirstShare_DaemonOfEarlierClaimReplaced(t *testing.T) {
	t.Parallel()
	for _, older := range []bool{false, true} {
		w := newWorld(t)
		w.older = older
		earlier := gpu.MPSDaemonSpec{GPU: uuidA, Device: string(uuidA), MemoryMiB: 512, ActiveThreadPercentage: 50, ShmBytes: 1 << 30}
		w.run(daemonA, earlier)
		_, err := w.step().Do(t.Context(), use(0, 0))
		require.NoError(t, err)
		assert.Equal(t, int64(20480), w.daemons[daemonA].Spec.MemoryMiB)
		assert.Equal(t, 102, w.daemons[daemonA].PID)
	}
	w := newWorld(t)
	w.mute = true
	_, err := w.step().Do(t.Context(), use(0, 0))
	require.Error(t, err)
	w.down = nil
	_, err = w.step().Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	assert.Equal(t, 101, w.daemons[daemonA].PID)

	w = newWorld(t)
	w.run(daemonA, gpu.MPSDaemonSpec{}).Servers, w.clients = []int{7}, []int{71}
	_, err = w.step().Do(t.Context(), use(0, 0))
	require.ErrorIs(t, err, gpu.ErrInUse, "a client of an earlier claim still runs")
}

// TestStep_RestartForLivingClaims_NotNew: containers use the directory.
func TestStep_RestartForLivingClaims_NotNew(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.exit(daemonA)
	n.reports()
	n.r.Reconcile(t.Context(), false)
	assert.NotContains(t, n.since(), "new")
	n.load = "load-2" // the driver was loaded again, and has forgotten the mode
	n.modes[string(uuidA)] = gpu.ComputeDefault
	_, err := n.step().Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	assert.NotContains(t, n.since(), "new")
}

// TestUndo_ServiceSlow_Pending: it may start the daemon after the start has timed out.
func TestUndo_ServiceSlow_Pending(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.failing["new"], w.failing["stop"] = gpu.ErrTimeout, gpu.ErrTimeout
	_, err := w.step().Do(t.Context(), use(0, 0))
	require.ErrorIs(t, err, gpu.ErrTimeout)
	assert.NotContains(t, err.Error(), "mps.enabled")
	require.ErrorIs(t, w.step().Undo(t.Context(), last(use(0, 0))), gpu.ErrTimeout)
	slow := explained(asUnavailable(gpu.ErrTimeout))
	require.ErrorContains(t, slow, "the MPS service is slow or hangs")
	assert.NotContains(t, slow.Error(), "mps.enabled")
}
