package mps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// sharedNode is a world with prepared claims and a reconciler.
type sharedNode struct {
	*world

	r        *Reconciler
	records  []*checkpoint.Record
	unread   error
	locks    int
	reported []string
	// unrestored are the reported sets of GPUs.
	unrestored [][]gpu.UUID
}

// newSharedNode has two claims share the GPU.
func newSharedNode(t *testing.T) *sharedNode {
	t.Helper()
	n := &sharedNode{world: newWorld(t)}
	step := n.step()
	for _, uid := range []string{"a", "b"} {
		of := use(2048, 25)
		_, err := step.Do(t.Context(), of)
		require.NoError(t, err)
		n.records = append(n.records, &checkpoint.Record{
			Claim: checkpoint.Claim{UID: uid}, BootID: "boot-1", State: checkpoint.Done, Steps: []checkpoint.Step{of},
		})
	}
	n.r = n.newReconciler()
	n.reports()
	n.since()
	return n
}

// newReconciler returns the reconciler of a new process, whose watcher runs only if the test runs it.
func (n *sharedNode) newReconciler() *Reconciler {
	report := func(format string, args ...any) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.reported = append(n.reported, fmt.Sprintf(format, args...))
	}
	return NewReconciler(ReconcilerOptions{
		Service: n.service("boot-1"), BootID: "boot-1",
		Records: func() ([]*checkpoint.Record, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			return slices.Clone(n.records), n.unread
		},
		WithGPULock: func(ctx context.Context, _ gpu.UUID, do func(ctx context.Context) error) error {
			n.mu.Lock()
			n.locks++
			n.mu.Unlock()
			return do(ctx)
		},
		Report: Reports{
			Restarted: func(d Shared, cause string) { report("restarted %s with %d shares: %s", d.ID, d.Shares, cause) },
			LimitsChanged: func(d Shared, found gpu.MPSLimitsInForce, settings gpu.MPSDaemonSpec) {
				report("limits of %s: %v, not %d MiB", d.ID, found.Default, settings.MemoryMiB)
			},
			ServerRestarted: func(d Shared) { report("server of %s restarted with %d shares", d.ID, d.Shares) },
			SingleUser:      func(d Shared) { report("single user %s", d.ID) },
			Failed:          func(d Shared, err error) { report("failed %s: %v", d.ID, err) },
			Unrestored:      func(gpus []gpu.UUID) { n.unrestored = append(n.unrestored, gpus) },
			Unread:          func(err error) { report("unread %v", err) },
		},
	})
}

// reports makes the service report its daemons to the reconciler's process.
func (n *sharedNode) reports() {
	n.mu.Lock()
	next := state{current: n.down == nil}
	if n.down != nil {
		next.answer.Unavailable = fmt.Errorf("%w: %w", gpu.ErrMPSUnavailable, n.down)
	}
	for _, d := range n.daemons {
		next.daemons = append(next.daemons, *d)
	}
	n.mu.Unlock()
	n.r.Watcher.set(next)
}

// events returns the reports since the last call.
func (n *sharedNode) events() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	events := n.reported
	n.reported = nil
	return events
}

func TestReconcile_NoShares_NothingAsked(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	require.NoError(t, n.step().Undo(t.Context(), last(use(0, 0))))
	n.records, n.unread = nil, errors.New("must not be read")
	n.since()
	assert.Equal(t, period, n.r.Reconcile(t.Context(), true))
	assert.Empty(t, n.since())
	assert.Zero(t, n.locks)
}

func TestReconcile_AllInForce_ReadOnlyWhenFull(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	assert.Equal(t, period, n.r.Reconcile(t.Context(), false))
	assert.Empty(t, n.since())
	assert.Zero(t, n.locks, "claims do not wait")
	n.r.Reconcile(t.Context(), true)
	assert.Equal(t, []string{"mode", "limits"}, n.since())
	assert.Zero(t, n.locks, "claims do not wait")
	assert.Empty(t, n.events())
	n.r.Watcher.set(state{})
	n.r.Reconcile(t.Context(), true)
	assert.Empty(t, n.since(), "nothing is known yet")
}

// TestReconcile_GPUsReleased_SharesUntouched: another GPU is being reset, and no session of the driver may be opened.
func TestReconcile_GPUsReleased_SharesUntouched(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.failing["driver"] = fmt.Errorf("released: %w", gpu.ErrInUse)
	n.exit(daemonA)
	n.reports()
	n.r.Reconcile(t.Context(), true)
	assert.Empty(t, n.since())
	assert.Empty(t, n.events())
	assert.Zero(t, n.locks)
	delete(n.failing, "driver")
	n.r.Reconcile(t.Context(), true)
	assert.Equal(t, []string{"restarted aaaaaaaa with 2 shares: exit status 1"}, n.events())
}

// TestReconcile_DaemonDied_ModeLast: while the GPU lacks a daemon nothing may use it, and the mode that allows it comes after the daemon.
func TestReconcile_DaemonDied_ModeLast(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.exit(daemonA)
	n.reports()
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, []string{"Prohibited", "list", "start", "Exclusive_Process", "ensure"}, n.since())
	assert.Equal(t, []string{"restarted aaaaaaaa with 2 shares: exit status 1"}, n.events())
	assert.EqualValues(t, 1, n.r.Counts.Restarts())
	kept, err := n.r.Store.get(daemonA)
	require.NoError(t, err)
	assert.Equal(t, saved{BootID: "boot-1", GPU: uuidA, Device: string(uuidA), Mode: gpu.ComputeDefault, Load: "load-1", PID: 102, Started: 1020}, *kept)
	n.reports()
	n.r.Reconcile(t.Context(), false)
	assert.Empty(t, n.since())
	require.NoError(t, n.step().Undo(t.Context(), last(use(0, 0))))
	assert.Equal(t, gpu.ComputeDefault, n.mode(string(uuidA)))
}

// TestReconcile_LastClaimUnpreparedMeanwhile_NotRestarted: the records are read again under the GPU's lock.
func TestReconcile_LastClaimUnpreparedMeanwhile_NotRestarted(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.exit(daemonA)
	n.reports()
	lock := n.r.WithGPULock
	n.r.WithGPULock = func(ctx context.Context, id gpu.UUID, do func(ctx context.Context) error) error {
		n.set(func() { n.records[0].State, n.records = checkpoint.Releasing, n.records[:1] })
		n.failing["set"] = gpu.ErrLost
		require.ErrorIs(t, n.step().Undo(ctx, last(use(0, 0))), gpu.ErrLost, "its cleanup is pending")
		delete(n.failing, "set")
		return lock(ctx, id, do)
	}
	n.since()
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, []string{"stop", "Default"}, n.since())
	assert.NotEmpty(t, n.files(t))
	assert.Empty(t, n.events())
}

// TestReconcile_StartFails_ProhibitedUntilItSucceeds, and reported once per cause.
func TestReconcile_StartFails_ProhibitedUntilItSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		n.exit(daemonA)
		n.failing["start"] = errors.New("no such program")
		n.reports()
		wait := n.r.Reconcile(t.Context(), false)
		assert.Equal(t, restartFirst, wait)
		assert.Equal(t, gpu.ComputeProhibited, n.mode(string(uuidA)))
		assert.Equal(t, []string{"failed aaaaaaaa: starting MPS control daemon aaaaaaaa of GPU " + string(uuidA) + ": no such program"}, n.events())
		n.since()
		n.r.Reconcile(t.Context(), false)
		assert.Empty(t, n.since(), "too soon")
		time.Sleep(wait)
		assert.Equal(t, 2*restartFirst, n.r.Reconcile(t.Context(), false))
		assert.Equal(t, []string{"list", "mode", "start"}, n.since(), "the mode is prohibited already")
		assert.Empty(t, n.events())
		delete(n.failing, "start")
		time.Sleep(2 * restartFirst)
		n.r.Reconcile(t.Context(), false)
		assert.Equal(t, []string{"list", "mode", "start", "Exclusive_Process", "ensure"}, n.since())
		assert.Len(t, n.events(), 1)
	})
}

// TestReconcile_ModeResetWhileBackedOff_ProhibitedAgain: a driver without persistence mode resets the mode of a GPU that nothing uses,
// and nothing uses one that is prohibited.
func TestReconcile_ModeResetWhileBackedOff_ProhibitedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		n.exit(daemonA)
		n.failing["start"] = errors.New("no such program")
		n.reports()
		n.r.Reconcile(t.Context(), false)
		n.set(func() { n.modes[string(uuidA)] = gpu.ComputeDefault })
		n.since()
		n.r.Reconcile(t.Context(), true)
		assert.Equal(t, []string{"list", "mode", "Prohibited"}, n.since(), "the daemon is not started before its time")
		delete(n.failing, "start")
		time.Sleep(2 * restartFirst)
		n.r.Reconcile(t.Context(), false)
		assert.Equal(t, []string{"list", "mode", "start", "Exclusive_Process", "ensure"}, n.since())
	})
}

// TestReconcile_DaemonExitsAgainAndAgain_BackedOff: the mode is prohibited at once all the same.
func TestReconcile_DaemonExitsAgainAndAgain_BackedOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		for i := range 4 {
			n.exit(daemonA)
			n.reports()
			wait := n.r.Reconcile(t.Context(), false)
			assert.Equal(t, i == 0, n.daemons[daemonA].State == gpu.MPSRunning, i)
			if i > 0 {
				assert.Equal(t, gpu.ComputeProhibited, n.mode(string(uuidA)))
				assert.Equal(t, restartFirst<<(i-1), wait)
				assert.Equal(t, []string{
					"failed aaaaaaaa: starting MPS control daemon aaaaaaaa of GPU " + string(uuidA) + " again: it restarts too often: exit status 1",
				}, n.events())
				time.Sleep(wait)
				n.r.Reconcile(t.Context(), false)
			}
			assert.Equal(t, []string{"restarted aaaaaaaa with 2 shares: exit status 1"}, n.events())
		}
		time.Sleep(calm + restartMost)
		n.exit(daemonA)
		n.reports()
		n.r.Reconcile(t.Context(), false)
		assert.Len(t, n.events(), 1, "it had run for long")
		n.exit(daemonA)
		n.reports()
		assert.Equal(t, restartFirst, n.r.Reconcile(t.Context(), false))
	})
}

// TestReconcile_GPULost_ReportedAndTriedAgain: a mode that could not be prohibited is tried again.
func TestReconcile_GPULost_ReportedAndTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSharedNode(t)
		n.exit(daemonA)
		n.failing["set"] = gpu.ErrLost
		n.reports()
		wait := n.r.Reconcile(t.Context(), false)
		assert.Equal(t, []string{"failed aaaaaaaa: setting the compute mode of " + string(uuidA) + " to Prohibited: GPU is lost"}, n.events())
		delete(n.failing, "set")
		n.since()
		time.Sleep(wait)
		n.r.Reconcile(t.Context(), false)
		assert.Equal(t, []string{"Prohibited", "list", "start", "Exclusive_Process", "ensure"}, n.since())
	})
}

// TestReconcile_ModeReset_SetAgain: without persistence mode, or by a driver that was loaded again, whose present mode is that to restore.
func TestReconcile_ModeReset_SetAgain(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.modes[string(uuidA)] = gpu.ComputeDefault
	n.r.Reconcile(t.Context(), true)
	assert.Equal(t, []string{"mode", "list", "mode", "Exclusive_Process", "limits"}, n.since())
	n.load, n.modes[string(uuidA)] = "load-2", gpu.ComputeDefault
	n.exit(daemonA)
	n.reports()
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, []string{"mode", "Prohibited", "list", "start", "Exclusive_Process", "ensure"}, n.since())
	require.NoError(t, n.step().Undo(t.Context(), last(use(0, 0))))
	assert.Equal(t, gpu.ComputeDefault, n.mode(string(uuidA)))
}

func TestReconcile_LimitsChanged_Restored(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	for _, changed := range []gpu.MPSLimitsInForce{
		{Default: gpu.MPSLimits{MemoryMiB: 40960, ActiveThreadPercentage: 50}},
		{Default: gpu.MPSLimits{MemoryMiB: 20480, ActiveThreadPercentage: 90}},
		{Default: gpu.MPSLimits{MemoryMiB: 20480}},
		{Default: gpu.MPSLimits{MemoryMiB: 20480, ActiveThreadPercentage: 50}, Servers: map[int]gpu.MPSLimits{7: {MemoryMiB: 0, ActiveThreadPercentage: 50}}},
	} {
		n.limits[daemonA] = changed
		n.since()
		n.r.Reconcile(t.Context(), true)
		assert.Equal(t, []string{"mode", "limits", "list", "mode", "limits", "restore"}, n.since(), "read again under the lock")
		assert.Len(t, n.events(), 1)
	}
	assert.EqualValues(t, 4, n.r.Counts.LimitsChanged())
	n.limits[daemonA] = gpu.MPSLimitsInForce{Default: gpu.MPSLimits{MemoryMiB: 20480, ActiveThreadPercentage: 49.2}}
	n.r.Reconcile(t.Context(), true)
	assert.Empty(t, n.events(), "MPS reports a part of the SMs")
}

func TestInForce_MemoryFromOneGiBOn_WholeGiB(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wanted, found int64
		same          bool
	}{{1023, 1023, true}, {1023, 1022, false}, {1500, 1024, true}, {2047, 1024, true}, {2048, 1024, false}, {0, 0, true}, {0, 1024, false}, {1024, 0, false}} {
		assert.Equal(t, c.same, inForce(gpu.MPSLimitsInForce{Default: gpu.MPSLimits{MemoryMiB: c.found, ActiveThreadPercentage: 100}},
			gpu.MPSDaemonSpec{MemoryMiB: c.wanted}), c)
	}
}

func TestReconcile_SingleUserAndOutdated_ReportedAndRenewed(t *testing.T) {
	t.Parallel()
	n := newSharedNode(t)
	n.daemons[daemonA].MultiUser = false
	n.reports()
	for range 3 {
		n.r.Reconcile(t.Context(), false)
	}
	assert.Equal(t, []string{"single user aaaaaaaa"}, n.events())
	n.daemons[daemonA].Outdated, n.clients = true, []int{7}
	n.reports()
	n.since()
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, 101, n.daemons[daemonA].PID, "it has clients")
	n.clients = nil
	n.r.Reconcile(t.Context(), false)
	assert.Equal(t, []string{"list", "mode", "ensure", "list", "mode", "ensure"}, n.since())
	assert.Equal(t, 102, n.daemons[daemonA].PID)
	kept, err := n.r.Store.get(daemonA)
	require.NoError(t, err)
	assert.Equal(t, 102, kept.PID)
}

// TestShared_RecordsOfBoot_MostOfSettings: claims that are not prepared, and claims of another boot, need no daemon.
func TestShared_RecordsOfBoot_MostOfSettings(t *testing.T) {
	t.Parallel()
	record := func(boot string, state checkpoint.State, steps ...checkpoint.Step) *checkpoint.Record {
		return &checkpoint.Record{BootID: boot, State: state, Steps: steps}
	}
	found := shared([]*checkpoint.Record{
		record("boot-1", checkpoint.Done, use(1, 1), useMIG()), record("boot-1", checkpoint.Done, use(2, 2)),
		record("boot-1", checkpoint.Intent, use(1, 1)), record("boot-0", checkpoint.Done, use(1, 1)),
		record("boot-1", checkpoint.Done, checkpoint.Step{Kind: "interval"}),
	}, "boot-1")
	require.Len(t, found, 2)
	assert.Equal(t, daemonA, found[0].ID)
	assert.Equal(t, 2, found[0].Shares)
	assert.Equal(t, gpu.MPSDaemonSpec{
		GPU: uuidA, Device: "d", MemoryMiB: 20480, ActiveThreadPercentage: 50, ShmBytes: 1 << 30,
	}, found[0].spec("d"))
	assert.Equal(t, daemonM, found[1].ID)
	assert.Zero(t, most(0, 5), "no limit is the most")
	assert.Equal(t, 7, most(7, 5))
}
