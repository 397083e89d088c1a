package inventory

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAwaitGPU_NoGPU_ProbedOnceAMinute counts the probes; the next one finds a GPU that was plugged in.
func TestAwaitGPU_NoGPU_ProbedOnceAMinute(t *testing.T) {
	t.Parallel()
	var probes atomic.Int64
	var plugged atomic.Bool
	c := newClock()
	done := make(chan error, 1)
	go func() {
		done <- AwaitGPU(t.Context(), func() bool { probes.Add(1); return plugged.Load() }, c.clock())
	}()
	var waited time.Duration
	for range 10 {
		waited += c.waiting(t)
		c.tick(t)
	}
	waited += c.waiting(t)
	assert.Equal(t, 11*time.Minute, waited)
	assert.EqualValues(t, 11, probes.Load())
	plugged.Store(true)
	c.tick(t)
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(waitLimit):
		require.Fail(t, "the GPU is not found")
	}
}

func TestAwaitGPU_ContextEnds_Returns(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := newClock()
	done := make(chan error, 1)
	go func() { done <- AwaitGPU(ctx, func() bool { return false }, c.clock()) }()
	c.waiting(t)
	cancel()
	select {
	case err := <-done:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(waitLimit):
		require.Fail(t, "the wait does not end")
	}
}

// TestRun_NoGPU_ProbedOnceAMinute: a machine loses its GPUs while claims use them.
func TestRun_NoGPU_ProbedOnceAMinute(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.loaded = ""
	var plugged atomic.Bool
	c := newClock()
	i := New(Options{Host: m, Open: m.open, Clock: c.clock(), MayHaveGPU: plugged.Load})
	require.Error(t, i.Refresh(t.Context()))
	go func() { _ = i.Run(t.Context()) }()
	for range 5 {
		assert.Equal(t, AbsentInterval, c.waiting(t))
		c.tick(t)
	}
	assert.Equal(t, AbsentInterval, c.waiting(t))
	plugged.Store(true)
	c.tick(t)
	assert.Equal(t, DefaultInterval, c.waiting(t), "a driver that has to be loaded yet is searched for more often")
	m.change(func(m *machine) { m.loaded = "580.95.05" })
	c.tick(t)
	c.waiting(t)
	assert.Len(t, i.Current().Node.GPUs, 2)
}
