package inventory

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestRelease_UntilTime_ClosedAndViewStays: claims that need the driver are refused meanwhile.
func TestRelease_UntilTime_ClosedAndViewStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		p := newPolling(m)
		p.refreshed(t)
		view := p.Current()
		go func() { _ = p.Run(t.Context()) }()
		driver, err := p.MIGDriver()
		require.NoError(t, err)
		until := time.Now().Add(123 * time.Second) // no multiple of the interval
		p.Release(until)
		synctest.Wait()
		assert.Equal(t, 1, m.closed)
		require.ErrorIs(t, p.last(t).Err, ErrReleased)
		_, modes := p.ComputeModes()
		_, limits := p.MemoryLimiter()
		for _, err := range []error{driver.SetMIGMode(t.Context(), gpuA, true), modes, limits} {
			released, ok := errors.AsType[*ReleasedError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, until, released.Until)
			require.ErrorIs(t, err, gpu.ErrInUse)
			require.NotErrorIs(t, err, gpu.ErrDriverNotLoaded)
			require.EqualError(t, err, "GPU released for maintenance until "+until.UTC().Format(time.RFC3339))
		}
		time.Sleep(123*time.Second - time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 1, m.opened)
		assert.Same(t, view, p.Current())
		p.mu.Lock()
		for _, poll := range p.polls {
			require.ErrorIs(t, poll.Err, ErrReleased)
			assert.Empty(t, poll.Readings)
		}
		p.polls = nil
		p.mu.Unlock()
		p.Check(t.Context(), gpuA)
		require.ErrorIs(t, p.last(t).Err, ErrReleased)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 2, m.opened, "at once")
		require.NoError(t, p.last(t).Err)
		assert.Same(t, view, p.Current())
		require.NoError(t, driver.SetMIGMode(t.Context(), gpuA, true))

		p.Release(time.Now().Add(10 * time.Minute))
		p.Release(time.Time{})
		synctest.Wait()
		assert.Equal(t, 3, m.opened, "the release ended early")
		require.NoError(t, p.Refresh(t.Context()))
	})
}

// TestRelease_CallOfClaimRuns_Waits: a MIG mode change is not cut off.
func TestRelease_CallOfClaimRuns_Waits(t *testing.T) {
	t.Parallel()
	m := newMachine()
	p := newPolling(m)
	p.refreshed(t)
	driver, err := p.MIGDriver()
	require.NoError(t, err)
	begun, returns, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	m.during = func(call string) {
		if call == "SetMIGMode" {
			close(begun)
			<-returns
		}
	}
	go func() { done <- driver.SetMIGMode(t.Context(), gpuA, true) }()
	<-begun
	released := make(chan struct{})
	go func() {
		p.Release(time.Now().Add(time.Hour))
		close(released)
	}()
	require.NoError(t, p.Refresh(t.Context()))
	assert.Zero(t, m.closed)
	close(returns)
	require.NoError(t, <-done)
	<-released
	assert.Equal(t, 1, m.closed)
}
