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

// keeping is a node whose configuration can change.
type keeping struct {
	*bench
	wanted  map[gpu.UUID]gpu.Interval
	unknown error
	changed chan struct{}
	failed  []string
}

func newKeeping(t *testing.T) *keeping {
	t.Helper()
	return &keeping{bench: newBench(t), changed: make(chan struct{})}
}

// keeper is that of a new process.
func (k *keeping) keeper(boot string) *Keeper {
	return NewKeeper(KeeperPorts{
		Tool: k.tool, Notes: k.notes(boot),
		Alone: func(ctx context.Context, _ gpu.UUID, do func(ctx context.Context) error) error {
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
			k.failed = append(k.failed, string(id[4:5])+" "+string(interval)+" "+err.Error())
		},
	})
}

// handOver comes between what a test has set and the wait in which it is read: fakes run only while the test waits, which the race
// detector does not know.
func (k *keeping) handOver() {
	k.mu.Lock()
	defer k.mu.Unlock()
}

// after lets time pass, in which fakes may read what the test has set.
func (k *keeping) after(pass time.Duration) {
	k.handOver()
	time.Sleep(pass)
	synctest.Wait()
}

// intervals are those of GPUs A and B.
func intervals(a, b gpu.Interval) map[gpu.UUID]gpu.Interval {
	return map[gpu.UUID]gpu.Interval{uuidA: a, uuidB: b}
}

func TestTheNodesIntervals(t *testing.T) {
	t.Parallel()
	k := newKeeping(t)
	one := k.keeper("boot-1")
	k.wanted = intervals("Default", "Default")
	assert.False(t, one.Keep(t.Context()))
	assert.Zero(t, k.runs, "a driver that was just loaded needs nothing")

	k.wanted = intervals("Default", "Long")
	for range 3 {
		assert.False(t, one.Keep(t.Context()))
	}
	assert.Equal(t, 1, k.runs, "it is set once")
	assert.Equal(t, gpu.IntervalLong, k.inForce[uuidB])

	two := k.keeper("boot-1")
	for range 3 {
		two.Keep(t.Context())
	}
	assert.Equal(t, 2, k.runs, "a new process does not know whether the driver was loaded anew")

	k.wanted = intervals("Short", "Default")
	two.Keep(t.Context())
	assert.Equal(t, intervals("Short", "Default"), k.inForce)
	k.wanted = intervals("Default", "Default")
	two.Keep(t.Context())
	assert.Equal(t, intervals("Default", "Default"), k.inForce)
	assert.Empty(t, k.files(t), "what was put back is forgotten")
	k.runs = 0
	k.keeper("boot-1").Keep(t.Context())
	assert.Zero(t, k.runs)
	assert.Empty(t, k.failed)
}

// TestWhatAnotherProcessHasSet is put back by one that was never told to set it.
func TestWhatAnotherProcessHasSet(t *testing.T) {
	t.Parallel()
	k := newKeeping(t)
	k.wanted = intervals("Long", "Default")
	k.keeper("boot-1").Keep(t.Context())
	k.wanted = intervals("Default", "Default")
	k.keeper("boot-1").Keep(t.Context())
	assert.Equal(t, gpu.IntervalDefault, k.inForce[uuidA])
	assert.Empty(t, k.files(t))
}

func TestTheNodesIntervalsAfterAReboot(t *testing.T) {
	t.Parallel()
	k := newKeeping(t)
	k.wanted = intervals("Long", "Short")
	k.keeper("boot-1").Keep(t.Context())
	k.inForce, k.runs = map[gpu.UUID]gpu.Interval{}, 0
	k.wanted = intervals("Long", "Default")
	k.keeper("boot-2").Keep(t.Context())
	assert.Equal(t, map[gpu.UUID]gpu.Interval{uuidA: "Long"}, k.inForce, "set anew where it is wanted, and nothing is put back")
	assert.Equal(t, []string{string(uuidA) + ".node.json"}, k.files(t), "what the earlier boot left is gone")
}

// TestAClaimOverTheNodesInterval: a claim's interval stays while it has the GPU, and gives way to what the node wants by then.
func TestAClaimOverTheNodesInterval(t *testing.T) {
	t.Parallel()
	k := newKeeping(t)
	keeper, step := k.keeper("boot-1"), k.step()
	k.wanted = intervals("Long", "Default")
	keeper.Keep(t.Context())
	for _, id := range []gpu.UUID{uuidA, uuidB} {
		_, err := step.Do(t.Context(), asks(id, "Short"))
		require.NoError(t, err)
	}
	keeper.Keep(t.Context())
	assert.Equal(t, intervals("Short", "Short"), k.inForce)

	require.NoError(t, step.Undo(t.Context(), asks(uuidA, "Short")))
	assert.Equal(t, gpu.IntervalLong, k.inForce[uuidA])
	k.wanted, k.runs = intervals("Default", "Medium"), 0
	keeper.Keep(t.Context())
	assert.Equal(t, intervals("Default", "Short"), k.inForce)
	assert.Equal(t, 1, k.runs)
	k.keeper("boot-1").Keep(t.Context())
	assert.Equal(t, gpu.IntervalShort, k.inForce[uuidB], "a new process leaves the claim's too")

	require.NoError(t, step.Undo(t.Context(), asks(uuidB, "Short")))
	assert.Equal(t, intervals("Default", "Medium"), k.inForce)
	keeper.Keep(t.Context())
	assert.Equal(t, 2, k.runs, "the end of the claim has set it")
	k.wanted = intervals("Default", "Default")
	keeper.Keep(t.Context())
	assert.Equal(t, intervals("Default", "Default"), k.inForce)
	assert.Empty(t, k.files(t))
}

func TestADriverThatIsLoadedAgain(t *testing.T) {
	t.Parallel()
	k := newKeeping(t)
	keeper := k.keeper("boot-1")
	k.wanted = intervals("Long", "Default")
	keeper.Keep(t.Context())
	k.unknown = errors.New("the configuration was not read yet")
	keeper.Keep(t.Context())
	k.unknown = nil
	keeper.Keep(t.Context())
	assert.Equal(t, 1, k.runs)
	k.unknown, k.inForce = gpu.ErrDriverNotLoaded, map[gpu.UUID]gpu.Interval{}
	assert.False(t, keeper.Keep(t.Context()))
	k.unknown = nil
	keeper.Keep(t.Context())
	assert.Equal(t, gpu.IntervalLong, k.inForce[uuidA])
}

func TestAGPUThatWasInMIGMode(t *testing.T) {
	t.Parallel()
	k := newKeeping(t)
	keeper := k.keeper("boot-1")
	k.wanted = intervals("Long", "Short")
	keeper.Keep(t.Context())
	k.wanted = map[gpu.UUID]gpu.Interval{uuidB: "Short"}
	k.inForce[uuidA] = "Default"
	keeper.Keep(t.Context())
	assert.Equal(t, 2, k.runs)
	k.wanted = intervals("Long", "Short")
	keeper.Keep(t.Context())
	assert.Equal(t, intervals("Long", "Short"), k.inForce)
	assert.Equal(t, 3, k.runs, "the other one was there all the time")
}

func TestWhatCannotBeSet(t *testing.T) {
	t.Parallel()
	k := newKeeping(t)
	keeper := k.keeper("boot-1")
	k.wanted = intervals("Long", "Default")
	k.refusal = gpu.ErrLost
	assert.True(t, keeper.Keep(t.Context()), "it may come back")
	assert.Empty(t, k.files(t), "nothing is to be put back")
	k.refusal = &gpu.UnsupportedError{Feature: "it"}
	assert.False(t, keeper.Keep(t.Context()), "only a change helps")
	assert.Equal(t, []string{
		"a Long setting what the node's configuration says: GPU is lost",
		"a Long setting what the node's configuration says: it is not supported here",
	}, k.failed)
	k.refusal, k.applied = gpu.ErrTimeout, true
	assert.True(t, keeper.Keep(t.Context()))
	k.refusal, k.wanted = nil, intervals("Default", "Default")
	assert.False(t, keeper.Keep(t.Context()))
	assert.Equal(t, gpu.IntervalDefault, k.inForce[uuidA], "what may have been set is put back")
}

func TestKeepingOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeping(t)
		k.wanted, k.refusal = intervals("Long", "Default"), gpu.ErrLost
		keeper := k.keeper("boot-1")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); keeper.Run(ctx) }()
		k.after(0)
		assert.Equal(t, 1, k.runs)
		k.after(retryFirst + time.Second)
		assert.Equal(t, 2, k.runs, "it is tried again")
		k.refusal = nil
		keeper.Look()
		k.after(0)
		assert.Equal(t, gpu.IntervalLong, k.inForce[uuidA])
		k.after(time.Hour)
		assert.Equal(t, 3, k.runs, "and then left alone")
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

// TestWhatCannotBeSetIsToldOnce, and again when it had been set meanwhile, or for another reason.
func TestWhatCannotBeSetIsToldOnce(t *testing.T) {
	t.Parallel()
	k := newKeeping(t)
	keeper := k.keeper("boot-1")
	keep := func(interval gpu.Interval, refusal error) (told, failing int) {
		k.wanted, k.refusal, k.failed = intervals(interval, "Default"), refusal, nil
		for range 3 {
			keeper.Keep(t.Context())
		}
		return len(k.failed), keeper.Failing()
	}
	for _, step := range []struct {
		interval      gpu.Interval
		refusal       error
		told, failing int
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
		told, failing := keep(step.interval, step.refusal)
		assert.Equal(t, step.told, told, step)
		assert.Equal(t, step.failing, failing, step)
	}
	k.wanted = nil
	keeper.Keep(t.Context())
	assert.Zero(t, keeper.Failing(), "nothing is wanted of it")
	_, failing := keep("Short", gpu.ErrTimeout)
	assert.Equal(t, 1, failing)
	k.unknown = gpu.ErrDriverNotLoaded
	keeper.Keep(t.Context())
	assert.Zero(t, keeper.Failing(), "nor without a driver")
}
