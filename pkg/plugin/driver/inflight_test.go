package driver

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInFlight_CallRuns_WaitedFor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var r Calls
	r.wait(ctx) // nothing runs

	started, finish, answered := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = r.count(ctx, nil, nil, func(context.Context, any) (any, error) {
			close(started)
			<-finish
			return nil, nil
		})
	}()
	<-started
	short, stop := context.WithTimeout(ctx, 10*time.Millisecond)
	defer stop()
	r.wait(short)
	require.Error(t, short.Err(), "it waited until the time was up")

	waited := make(chan struct{})
	go func() {
		defer close(waited)
		r.wait(ctx)
	}()
	close(finish)
	<-answered
	<-waited
	require.NoError(t, ctx.Err())
}

func TestCalls_InFlight_NotQuiet(t *testing.T) {
	t.Parallel()
	var c Calls
	assert.Positive(t, c.Quiet(), "no call was ever in flight")
	_, err := c.count(t.Context(), nil, nil, func(context.Context, any) (any, error) {
		assert.Zero(t, c.Quiet())
		_, err := c.count(t.Context(), nil, nil, func(context.Context, any) (any, error) { return nil, nil })
		assert.Zero(t, c.Quiet(), "one of two calls is still in flight")
		return nil, err
	})
	require.NoError(t, err)
	assert.Less(t, c.Quiet(), time.Since(time.Time{}), "it counts from the end of the last call")
}
