package sampler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

func (f *fakeLibrary) isOpen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// TestSuspend_Session_ClosedWithinASecond: and opened at the time, without another call.
func TestSuspend_Session_ClosedWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, lines := newFake(2), 0
		s := started(t, Options{Library: f, Log: funcr.New(func(string, string) { lines++ }, funcr.Options{})})
		pass(15 * time.Second)
		require.True(t, gpuOf(t, s, "GPU-0").Up)
		until := time.Now().Add(2 * time.Minute)
		s.Suspend(until)
		pass(time.Second)
		assert.False(t, f.isOpen())
		require.Equal(t, &SuspendedError{until}, s.Status().Err)
		assert.False(t, gpuOf(t, s, "GPU-0").Up)
		assert.False(t, has(gpuOf(t, s, "GPU-0"), metrics.FieldPowerUsage), "absent, not 0")
		assert.True(t, gpuOf(t, s, "GPU-0").Released)
		pass(time.Until(until) - time.Millisecond)
		assert.Equal(t, 1, f.opens())
		pass(time.Second)
		assert.Equal(t, 2, f.opens())
		require.NoError(t, s.Status().Err)
		assert.True(t, gpuOf(t, s, "GPU-0").Up)
		assert.Equal(t, 2, lines, "one at each end")
	})
}

// TestSuspend_GPUDoesNotReturn_DownAfterThreeIntervals: until then it is unknown whether it responds.
func TestSuspend_GPUDoesNotReturn_DownAfterThreeIntervals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		s := started(t, Options{Library: f})
		pass(15 * time.Second)
		s.Suspend(time.Now().Add(5 * time.Minute))
		f.change(func() { delete(f.gpus, "GPU-0") })
		pass(5*time.Minute - time.Millisecond)
		assert.True(t, gpuOf(t, s, "GPU-0").Released)
		assert.True(t, gpuOf(t, s, "GPU-1").Released)
		pass(29 * time.Second)
		assert.True(t, gpuOf(t, s, "GPU-0").Released)
		assert.True(t, gpuOf(t, s, "GPU-1").Up)
		pass(2 * time.Second)
		assert.Equal(t, [2]bool{}, [2]bool{gpuOf(t, s, "GPU-0").Up, gpuOf(t, s, "GPU-0").Released})
	})
}

func TestSuspend_EndedOrProlonged_FollowsTheLastTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		s := started(t, Options{Library: f})
		pass(time.Second)
		s.Suspend(time.Now().Add(time.Minute))
		pass(30 * time.Second)
		s.Suspend(time.Now().Add(time.Minute))
		pass(59 * time.Second)
		assert.False(t, f.isOpen())
		s.Suspend(time.Time{})
		pass(time.Millisecond)
		assert.True(t, f.isOpen())
		s.Suspend(time.Now().Add(-time.Minute))
		pass(time.Minute)
		assert.Equal(t, 2, f.opens(), "a time in the past closes nothing")
	})
}

// TestSuspend_BeforeStartOrWithoutDriver_NotOpened: a sampler that starts during maintenance, or that is waiting for the driver, opens none.
func TestSuspend_BeforeStartOrWithoutDriver_NotOpened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		f.openErr = gpu.ErrDriverNotLoaded
		s := started(t, Options{Library: f})
		pass(15 * time.Second)
		s.Suspend(time.Now().Add(time.Minute))
		f.change(func() { f.openErr = nil })
		pass(59 * time.Second)
		assert.Zero(t, f.opens())
		pass(2 * time.Second)
		assert.Equal(t, 1, f.opens())
	})
}

// TestSuspend_WhileOpening_Closed: the session that is just being opened is closed too.
func TestSuspend_WhileOpening_Closed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		s := New(Options{Library: f})
		require.True(t, s.resumed(t.Context()))
		s.Suspend(time.Now().Add(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.session(ctx)
		require.ErrorIs(t, err, errSuspended)
		assert.False(t, f.isOpen())
		assert.Zero(t, f.rounds("GPU-0"))
	})
}
