package timeslice

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

// configuredNode is a machine with a node configuration that tests change.
type configuredNode struct {
	*machine
	wanted  map[gpu.UUID]gpu.Interval
	unknown error
	changed chan struct{}
	failed  []string
}

func newConfiguredNode(t *testing.T) *configuredNode {
	t.Helper()
	return &configuredNode{machine: newMachine(t), changed: make(chan struct{})}
}

// newReconciler is the reconciler of a new process in that boot.
func (k *configuredNode) newReconciler(boot string) *Reconciler {
	return NewReconciler(ReconcilerOptions{
		Tool: k.tool, Store: k.store(boot),
		WithGPULock: func(ctx context.Context, _ gpu.UUID, do func(ctx context.Context) error) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx)
		},
		Wanted: func() (map[gpu.UUID]gpu.Interval, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.wanted, k.unknown
		},
		Changed: func() <-chan struct{} {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.changed
		},
		Failed: func(id gpu.UUID, interval gpu.Interval, err error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.failed = append(k.failed, string(id[4:5])+" "+string(interval)+" "+err.Error())
		},
	})
}

// synchronise orders the test's writes before the reads of the fakes. Fakes run only while the test waits, which the race detector
// cannot see.
func (k *configuredNode) synchronise() {
	k.mu.Lock()
	defer k.mu.Unlock()
}

// after advances the fake clock and waits until Run is idle.
func (k *configuredNode) after(pass time.Duration) {
	k.synchronise()
	time.Sleep(pass)
	synctest.Wait()
}

// intervals are the intervals of GPUs A and B.
func intervals(a, b gpu.Interval) map[gpu.UUID]gpu.Interval {
	return map[gpu.UUID]gpu.Interval{uuidA: a, uuidB: b}
}

func TestReconcile_ConfigurationChanges_SetOncePerProcess(t *testing.T) {
	t.Parallel()
	k := newConfiguredNode(t)
	one := k.newReconciler("boot-1")
	k.wanted = intervals("Default", "Default")
	assert.False(t, one.Reconcile(t.Context()))
	assert.Zero(t, k.runs, "a driver that was just loaded uses the default")

	k.wanted = intervals("Default", "Long")
	for range 3 {
		assert.False(t, one.Reconcile(t.Context()))
	}
	assert.Equal(t, 1, k.runs, "an interval is set once")
	assert.Equal(t, gpu.IntervalLong, k.inForce[uuidB])

	two := k.newReconciler("boot-1")
	for range 3 {
		two.Reconcile(t.Context())
	}
	assert.Equal(t, 2, k.runs, "a new process cannot know whether the driver was loaded again")

	k.wanted = intervals("Short", "Default")
	two.Reconcile(t.Context())
	assert.Equal(t, intervals("Short", "Default"), k.inForce)
	k.wanted = intervals("Default", "Default")
	two.Reconcile(t.Context())
	assert.Equal(t, intervals("Default", "Default"), k.inForce)
	assert.Empty(t, k.files(t), "the default interval needs no record")
	k.runs = 0
	k.newReconciler("boot-1").Reconcile(t.Context())
	assert.Zero(t, k.runs)
	assert.Empty(t, k.failed)
}

// The interval of an earlier process is reset by a process that never had it configured.
func TestReconcile_IntervalOfEarlierProcess_Reset(t *testing.T) {
	t.Parallel()
	k := newConfiguredNode(t)
	k.wanted = intervals("Long", "Default")
	k.newReconciler("boot-1").Reconcile(t.Context())
	k.wanted = intervals("Default", "Default")
	k.newReconciler("boot-1").Reconcile(t.Context())
	assert.Equal(t, gpu.IntervalDefault, k.inForce[uuidA])
	assert.Empty(t, k.files(t))
}

func TestReconcile_AfterReboot_SetAgain(t *testing.T) {
	t.Parallel()
	k := newConfiguredNode(t)
	k.wanted = intervals("Long", "Short")
	k.newReconciler("boot-1").Reconcile(t.Context())
	k.inForce, k.runs = map[gpu.UUID]gpu.Interval{}, 0
	k.wanted = intervals("Long", "Default")
	k.newReconciler("boot-2").Reconcile(t.Context())
	assert.Equal(t, map[gpu.UUID]gpu.Interval{uuidA: "Long"}, k.inForce, "set again where it is configured, and nothing is reset")
	assert.Equal(t, []string{string(uuidA) + ".node.json"}, k.files(t), "the files of the earlier boot are removed")
}

// A claim's interval stays in force until it is unprepared; then the node's current interval is set.
func TestReconcile_ClaimHasInterval_NodesIntervalSetAtUndo(t *testing.T) {
	t.Parallel()
	k := newConfiguredNode(t)
	reconciler, step := k.newReconciler("boot-1"), k.step()
	k.wanted = intervals("Long", "Default")
	reconciler.Reconcile(t.Context())
	for _, id := range []gpu.UUID{uuidA, uuidB} {
		_, err := step.Do(t.Context(), intervalStep(id, "Short"))
		require.NoError(t, err)
	}
	reconciler.Reconcile(t.Context())
	assert.Equal(t, intervals("Short", "Short"), k.inForce)

	require.NoError(t, step.Undo(t.Context(), intervalStep(uuidA, "Short")))
	assert.Equal(t, gpu.IntervalLong, k.inForce[uuidA])
	k.wanted, k.runs = intervals("Default", "Medium"), 0
	reconciler.Reconcile(t.Context())
	assert.Equal(t, intervals("Default", "Short"), k.inForce)
	assert.Equal(t, 1, k.runs)
	k.newReconciler("boot-1").Reconcile(t.Context())
	assert.Equal(t, gpu.IntervalShort, k.inForce[uuidB], "a new process keeps the claim's interval too")

	require.NoError(t, step.Undo(t.Context(), intervalStep(uuidB, "Short")))
	assert.Equal(t, intervals("Default", "Medium"), k.inForce)
	reconciler.Reconcile(t.Context())
	assert.Equal(t, 2, k.runs, "Undo has set it")
	k.wanted = intervals("Default", "Default")
	reconciler.Reconcile(t.Context())
	assert.Equal(t, intervals("Default", "Default"), k.inForce)
	assert.Empty(t, k.files(t))
}

func TestReconcile_DriverLoadedAgain_SetAgain(t *testing.T) {
	t.Parallel()
	k := newConfiguredNode(t)
	reconciler := k.newReconciler("boot-1")
	k.wanted = intervals("Long", "Default")
	reconciler.Reconcile(t.Context())
	k.unknown = errors.New("the configuration was not read yet")
	reconciler.Reconcile(t.Context())
	k.unknown = nil
	reconciler.Reconcile(t.Context())
	assert.Equal(t, 1, k.runs)
	k.unknown, k.inForce = gpu.ErrDriverNotLoaded, map[gpu.UUID]gpu.Interval{}
	assert.False(t, reconciler.Reconcile(t.Context()))
	k.unknown = nil
	reconciler.Reconcile(t.Context())
	assert.Equal(t, gpu.IntervalLong, k.inForce[uuidA])
}

func TestReconcile_GPUWasInMIGMode_SetAgain(t *testing.T) {
	t.Parallel()
	k := newConfiguredNode(t)
	reconciler := k.newReconciler("boot-1")
	k.wanted = intervals("Long", "Short")
	reconciler.Reconcile(t.Context())
	k.wanted = map[gpu.UUID]gpu.Interval{uuidB: "Short"}
	k.inForce[uuidA] = "Default"
	reconciler.Reconcile(t.Context())
	assert.Equal(t, 2, k.runs)
	k.wanted = intervals("Long", "Short")
	reconciler.Reconcile(t.Context())
	assert.Equal(t, intervals("Long", "Short"), k.inForce)
	assert.Equal(t, 3, k.runs, "the other GPU was available all the time")
}

func TestReconcile_ToolFails_RetriedUnlessUnsupported(t *testing.T) {
	t.Parallel()
	k := newConfiguredNode(t)
	reconciler := k.newReconciler("boot-1")
	k.wanted = intervals("Long", "Default")
	k.refusal = gpu.ErrLost
	assert.True(t, reconciler.Reconcile(t.Context()), "a lost GPU may come back")
	assert.Empty(t, k.files(t), "nothing has to be reset")
	k.refusal = &gpu.UnsupportedError{Feature: "it"}
	assert.False(t, reconciler.Reconcile(t.Context()), "a retry cannot succeed")
	assert.Equal(t, []string{
		"a Long setting the time-slice interval of the node's configuration: GPU is lost",
		"a Long setting the time-slice interval of the node's configuration: it is not supported here",
	}, k.failed)
	k.refusal, k.applied = gpu.ErrTimeout, true
	assert.True(t, reconciler.Reconcile(t.Context()))
	k.refusal, k.wanted = nil, intervals("Default", "Default")
	assert.False(t, reconciler.Reconcile(t.Context()))
	assert.Equal(t, gpu.IntervalDefault, k.inForce[uuidA], "an interval that may have been set is reset")
}

func TestRun_FailureAndChange_Reconciled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newConfiguredNode(t)
		k.wanted, k.refusal = intervals("Long", "Default"), gpu.ErrLost
		reconciler := k.newReconciler("boot-1")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); reconciler.Run(ctx) }()
		k.after(0)
		assert.Equal(t, 1, k.runs)
		k.after(retryFirst + time.Second)
		assert.Equal(t, 2, k.runs, "the failure is retried")
		k.refusal = nil
		reconciler.Trigger()
		k.after(0)
		assert.Equal(t, gpu.IntervalLong, k.inForce[uuidA])
		k.after(time.Hour)
		assert.Equal(t, 3, k.runs, "an interval in force is not set again")
		k.wanted = intervals("Short", "Default")
		last := k.changed
		k.changed = make(chan struct{})
		close(last)
		k.after(0)
		assert.Equal(t, gpu.IntervalShort, k.inForce[uuidA])
		stop()
		<-done
	})
}

// A failure is reported once, and again after a success or with another cause.
func TestReconcile_RepeatedFailure_ReportedOnce(t *testing.T) {
	t.Parallel()
	k := newConfiguredNode(t)
	reconciler := k.newReconciler("boot-1")
	reconcile := func(interval gpu.Interval, refusal error) (reported, failing int) {
		k.wanted, k.refusal, k.failed = intervals(interval, "Default"), refusal, nil
		for range 3 {
			reconciler.Reconcile(t.Context())
		}
		return len(k.failed), reconciler.Failing()
	}
	for _, step := range []struct {
		interval          gpu.Interval
		refusal           error
		reported, failing int
	}{
		{"Long", gpu.ErrLost, 1, 1},
		{"Long", gpu.ErrLost, 0, 1},
		{"Long", gpu.ErrTimeout, 1, 1},
		{"Long", nil, 0, 0},
		{"Short", gpu.ErrTimeout, 1, 1},
		{"Long", gpu.ErrTimeout, 1, 1},
		{"Long", nil, 0, 0},
		{"Short", gpu.ErrTimeout, 1, 1},
	} {
		reported, failing := reconcile(step.interval, step.refusal)
		assert.Equal(t, step.reported, reported, step)
		assert.Equal(t, step.failing, failing, step)
	}
	k.wanted = nil
	reconciler.Reconcile(t.Context())
	assert.Zero(t, reconciler.Failing(), "no interval is configured for it")
	_, failing := reconcile("Short", gpu.ErrTimeout)
	assert.Equal(t, 1, failing)
	k.unknown = gpu.ErrDriverNotLoaded
	reconciler.Reconcile(t.Context())
	assert.Zero(t, reconciler.Failing(), "no failures without a driver")
}

// TestRun_OneGPULocked_OthersSet: while a claim holds the lock of one GPU, or its driver hangs, the others are set and that one is retried.
// It gets the interval that is configured when the lock is free.
func TestRun_OneGPULocked_OthersSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newConfiguredNode(t)
		k.wanted = intervals("Long", "Long")
		reconciler := k.newReconciler("boot-1")
		taken, lock := make(chan struct{}), reconciler.WithGPULock
		reconciler.WithGPULock = func(ctx context.Context, id gpu.UUID, do func(ctx context.Context) error) error {
			if id == uuidA { // the first one
				select {
				case <-taken:
				case <-ctx.Done():
				}
			}
			return lock(ctx, id, do)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); reconciler.Run(ctx) }()
		k.after(0)
		assert.Equal(t, map[gpu.UUID]gpu.Interval{uuidB: "Long"}, k.inForce)
		k.wanted, k.refusal = intervals("Short", "Short"), gpu.ErrLost
		reconciler.Trigger()
		k.after(0)
		k.refusal = nil
		k.after(retryFirst)
		assert.Equal(t, map[gpu.UUID]gpu.Interval{uuidB: "Short"}, k.inForce, "its failure is retried")
		k.runs = 0
		close(taken)
		k.after(0)
		assert.Equal(t, intervals("Short", "Short"), k.inForce)
		assert.Equal(t, 1, k.runs, "not the interval of before")
		stop()
		<-done
	})
}
