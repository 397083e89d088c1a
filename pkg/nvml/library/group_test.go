package library

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

const limit = 2 * time.Second

// ask makes a call that returns after a while.
func ask(ctx context.Context, g *Gate, name string, after time.Duration) (string, error) {
	return Pass(ctx, g, Call{On: GPUAt(0), Name: name, Limit: limit}, func() (string, error) {
		<-time.After(after)
		return name, nil
	})
}

// TestGroup_SlowCalls_EachHasItsOwnDeadline: together they take longer than the limit of one.
func TestGroup_SlowCalls_EachHasItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		answered := 0
		require.NoError(t, g.Group(t.Context(), GPUAt(0), limit, func(ctx context.Context) error {
			for range 5 {
				name, err := ask(ctx, g, "nvmlSlow", limit*9/10)
				if err != nil {
					return err
				}
				assert.Equal(t, "nvmlSlow", name)
				answered++
				<-time.After(limit) // time between calls is not limited
			}
			return nil
		}))
		assert.Equal(t, 5, answered)
	})
}

// TestGroup_CallHangs_NothingElseRunsUntilItReturns: the error is the same as for a single call, and only the group accesses the data that
// it changes.
func TestGroup_CallHangs_NothingElseRunsUntilItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		asked, over := 0, false
		err := g.Group(t.Context(), GPUAt(0), limit, func(ctx context.Context) error {
			_, err := ask(ctx, g, "nvmlFirst", limit/2)
			require.NoError(t, err)
			_, err = ask(ctx, g, "nvmlHangs", 10*limit)
			require.ErrorIs(t, err, gpu.ErrTimeout)
			_, err = Pass(ctx, g, Call{On: GPUAt(0), Name: "nvmlNext", Limit: limit}, func() (int, error) { asked++; return asked, nil })
			require.ErrorIs(t, err, gpu.ErrTimeout)
			over = true
			return nil
		})
		require.ErrorIs(t, err, gpu.ErrTimeout)
		require.ErrorContains(t, err, "nvmlHangs on GPU 0: ")
		assert.False(t, over)
		require.ErrorIs(t, g.Group(t.Context(), GPUAt(0), limit, func(context.Context) error { asked++; return nil }), gpu.ErrTimeout)
		_, alone := ask(t.Context(), g, "nvmlAlone", 0)
		require.ErrorIs(t, alone, gpu.ErrTimeout)
		require.NoError(t, g.Group(t.Context(), GPUAt(1), limit, func(context.Context) error { return nil }), "another GPU answers")
		require.NoError(t, g.Idle(t.Context(), GPUAt(0)))
		assert.True(t, over, "idle once the group has returned")
		assert.Zero(t, asked, "no call after the one that hung")
		require.NoError(t, g.Group(t.Context(), GPUAt(0), limit, func(context.Context) error { asked++; return nil }))
		assert.Equal(t, 1, asked)
	})
}

// TestGroup_Errors_HandedOn: the error of a call is the same as for a single call, and no call is made after the context has ended.
func TestGroup_Errors_HandedOn(t *testing.T) {
	t.Parallel()
	g, lost := NewGate(), errors.New("lost")
	call := func(ctx context.Context) error {
		_, err := Pass(ctx, g, Call{On: GPUAt(0), Name: "nvmlFails", Limit: limit}, func() (int, error) { return 0, lost })
		return err
	}
	alone := call(t.Context())
	err := g.Group(t.Context(), GPUAt(0), limit, call)
	require.ErrorIs(t, err, lost)
	require.EqualError(t, err, alone.Error())
	ctx, cancel := context.WithCancel(t.Context())
	err = g.Group(ctx, GPUAt(0), limit, func(ctx context.Context) error {
		cancel()
		return call(ctx)
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, g.Group(ctx, GPUAt(0), limit, call), context.Canceled)
}
