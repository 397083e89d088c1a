package profile

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCopy_NoByteComes_Ended: a program in a container may never write, for example cat of a pipe.
func TestCopy_NoByteComes_Ended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := unlessStalled(t.Context(), func(ctx context.Context, touch func()) error {
			for range 3 {
				<-time.After(stall - time.Second)
				require.NoError(t, ctx.Err())
				touch()
			}
			<-ctx.Done()
			return ctx.Err()
		})
		require.EqualError(t, err, "no data received for 1m0s")
		assert.Equal(t, 3*(stall-time.Second)+stall, time.Since(began))

		broken := errors.New("broken")
		require.ErrorIs(t, unlessStalled(t.Context(), func(context.Context, func()) error { return broken }), broken)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		require.ErrorIs(t, unlessStalled(ctx, func(ctx context.Context, _ func()) error { return ctx.Err() }), context.Canceled)
	})
}
