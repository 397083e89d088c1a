package download

import (
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCapped_SizeNotKnown_BoundedToo: earlier versions recorded reports without a size.
func TestCapped_SizeNotKnown_BoundedToo(t *testing.T) {
	t.Parallel()
	c := &capped{to: io.Discard, left: atMost(0)}
	piece := make([]byte, 1<<20)
	for range 1 << 10 {
		_, err := c.Write(piece)
		require.NoError(t, err)
	}
	_, err := c.Write(piece[:1])
	require.ErrorIs(t, err, errLarge)
	assert.Positive(t, atMost(math.MaxInt64), "a container may claim any size")
}
