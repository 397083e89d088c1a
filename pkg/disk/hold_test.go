package disk

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHoldContext_Done_ReturnsAndReleases: a lock acquired too late is released.
func TestHoldContext_Done_ReturnsAndReleases(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	release, err := OS{}.HoldContext(t.Context(), dir, false)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := OS{}.HoldContext(ctx, dir, false)
		done <- err
	}()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	release()
	require.Eventually(t, func() bool {
		release, held, err := OS{}.TryHold(dir)
		if held {
			release()
		}
		return held && err == nil
	}, time.Minute, time.Millisecond)
}
