package hook

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBounded_HangsOrPanics_Error: the container then starts, unless its claim requires that it fails.
func TestBounded_HangsOrPanics_Error(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	require.NoError(t, bounded(func() error { return nil }))
	require.ErrorIs(t, bounded(func() error { return cause }), cause)
	require.ErrorContains(t, bounded(func() error { panic("index out of range") }), "internal error: index out of range")
	synctest.Test(t, func(t *testing.T) {
		hangs, began := make(chan struct{}), time.Now()
		require.ErrorContains(t, bounded(func() error { <-hangs; return nil }), "it took longer than 15s")
		assert.Equal(t, prepareTimeout, time.Since(began))
		close(hangs)
	})
}
