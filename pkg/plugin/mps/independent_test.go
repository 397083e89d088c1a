package mps

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	uuidB   = gpu.UUID("GPU-bbbbbbbb-0000-4000-8000-000000000000")
	daemonB = gpu.MPSDaemonID("bbbbbbbb")
)

// withSecondGPU adds a claim that shares another GPU.
func (n *sharedNode) withSecondGPU(t *testing.T) {
	t.Helper()
	n.modes[string(uuidB)] = gpu.ComputeDefault
	step := checkpoint.Step{Kind: claim.StepMPS, Target: uuidB, Args: []byte(`{"daemon":"bbbbbbbb","default":{"shmBytes":1024}}`)}
	_, err := n.step().Do(t.Context(), step)
	require.NoError(t, err)
	n.records = append(n.records, &checkpoint.Record{
		Claim: checkpoint.Claim{UID: "c"}, BootID: "boot-1", State: checkpoint.Done, Steps: []checkpoint.Step{step},
	})
	n.since()
}

// lockGPU takes the lock of a GPU until the returned function is called.
func (n *sharedNode) lockGPU(id gpu.UUID) (unlock func()) {
	taken, lock := make(chan struct{}), n.r.WithGPULock
	n.r.WithGPULock = func(ctx context.Context, of gpu.UUID, do func(ctx context.Context) error) error {
		if of == id {
			select {
			case <-taken:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return lock(ctx, of, do)
	}
	return func() { close(taken) }
}

// TestRun_OneGPULocked_OthersRepaired: as soon as they are to be, and checked as often as otherwise; the locked one is repaired when its lock is free.
func TestRun_OneGPULocked_OthersRepaired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		n.withSecondGPU(t)
		unlock := n.lockGPU(uuidA)
		ctx, stop := context.WithCancel(t.Context())
		ended := n.run(ctx)
		after(0)
		n.exit(daemonA)
		after(0)
		const tooLong = 2 * checkTime // for how long the lock is taken
		for range tooLong / period {
			n.exit(daemonB)
			after(restartMost / 10)
			assert.Equal(t, gpu.MPSRunning, n.states()[daemonB])
			n.set(func() { n.modes[string(uuidB)] = gpu.ComputeDefault })
			after(period + shortest)
			assert.Equal(t, gpu.ComputeExclusiveProcess, n.mode(string(uuidB)))
		}
		assert.Equal(t, gpu.MPSDead, n.states()[daemonA])
		unlock()
		after(restartFirst)
		assert.Equal(t, gpu.MPSRunning, n.states()[daemonA], "it is waiting for the lock again")
		stop()
		ended()
	})
}

// states are the states of all daemons.
func (n *sharedNode) states() map[gpu.MPSDaemonID]gpu.MPSDaemonState {
	n.mu.Lock()
	defer n.mu.Unlock()
	states := map[gpu.MPSDaemonID]gpu.MPSDaemonState{}
	for id, d := range n.daemons {
		states[id] = d.State
	}
	return states
}

// TestRun_AskedWhileChecking_CheckedAgain: news that comes while a device is checked is not lost.
func TestRun_AskedWhileChecking_CheckedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		unlock := n.lockGPU(uuidA)
		lock := n.r.WithGPULock
		first := true
		n.r.WithGPULock = func(ctx context.Context, id gpu.UUID, do func(ctx context.Context) error) error {
			return lock(ctx, id, func(ctx context.Context) error {
				if err := do(ctx); err != nil || !first {
					return err
				}
				first = false
				n.set(func() { n.daemons[daemonA].Servers = nil }) // its server exits when it has just been repaired
				synctest.Wait()
				return nil
			})
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := n.run(ctx)
		after(0)
		n.exit(daemonA)
		after(0)
		unlock()
		after(3 * restartFirst)
		n.mu.Lock()
		assert.NotEmpty(t, n.daemons[daemonA].Servers)
		n.mu.Unlock()
		stop()
		ended()
	})
}

// TestRun_ProcessOfDaemonGone_ProhibitedWithinASecond, whether the service is replaced, hangs or has not noticed, while another GPU is locked, and
// while the daemon may not be started again yet.
func TestRun_ProcessOfDaemonGone_ProhibitedWithinASecond(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(n *sharedNode){
		"pod of the service deleted": func(n *sharedNode) { n.down = errors.New("connection refused") },
		"service hangs":              func(n *sharedNode) { n.revision = -1 << 40 },
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					n := newSharedNode(t)
					n.withSecondGPU(t)
					n.lockGPU(uuidB)
					ctx, stop := context.WithCancel(t.Context())
					ended := n.run(ctx)
					after(0)
					if restarted {
						n.exit(daemonA)
						after(0)
						require.Equal(t, gpu.ComputeExclusiveProcess, n.mode(string(uuidA)))
					}
					n.set(func() {
						lose(n)
						n.daemons[daemonA].State = gpu.MPSDead
					})
					after(time.Second)
					assert.Equal(t, gpu.ComputeProhibited, n.mode(string(uuidA)))
					require.NoError(t, n.r.Watcher.Unavailable(), "the taint comes later")
					assert.Equal(t, gpu.ComputeExclusiveProcess, n.mode(string(uuidB)), "its daemon runs")
					stop()
					ended()
				})
			})
		}
	}
}

// TestExited_SinceTheRepair_Noticed without another round, which nothing need cause.
func TestExited_SinceTheRepair_Noticed(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.loseService(false)
	n.r.Reconcile(t.Context(), false)
	require.Equal(t, gpu.ComputeProhibited, n.mode(string(uuidA)))
	n.down = nil
	n.reports()
	n.r.Reconcile(t.Context(), true)
	require.Equal(t, gpu.ComputeExclusiveProcess, n.mode(string(uuidA)))
	assert.False(t, n.r.exited())
	n.set(func() { n.daemons[daemonA].State = gpu.MPSDead })
	assert.True(t, n.r.exited())
}

// TestReconcile_DaemonStartedAgainNotSaved_NotProhibited: the process that started it was killed before it had saved that.
func TestReconcile_DaemonStartedAgainNotSaved_NotProhibited(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.set(func() { n.daemons[daemonA].PID = 4711 })
	n.reports()
	n.r.Reconcile(t.Context(), true)
	assert.NotContains(t, n.since(), string(gpu.ComputeProhibited))
	n.r.Reconcile(t.Context(), false)
	n.r.Watcher.set(state{})
	n.r.Process = func(int) (uint64, bool) { return 0, false }
	kept := n.keptOf(t)
	kept.Started = 0
	require.NoError(t, n.r.Store.put(daemonA, kept))
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, gpu.ComputeExclusiveProcess, n.mode(string(uuidA)), "a process that was never found may run")
}

// TestStep_FurtherShareProcessGone_ProhibitedFirst: the claim holds the lock of the GPU while it waits for the service.
func TestStep_FurtherShareProcessGone_ProhibitedFirst(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.set(func() { n.daemons[daemonA].State, n.down = gpu.MPSDead, errors.New("connection refused") })
	_, err := n.step().Do(t.Context(), use(0, 0))
	require.ErrorIs(t, err, gpu.ErrMPSUnavailable)
	assert.Equal(t, []string{"Prohibited", "start"}, n.since())
}
