package backoff

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBackoff_Defer_DoublesUpToTheMost(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	b := Backoff{First: time.Second, Max: 5 * time.Second}
	assert.True(t, b.Due(now), "the first attempt is due at once")
	assert.True(t, b.Next().IsZero())
	for _, wait := range []time.Duration{1, 2, 4, 5, 5} {
		b.Defer(now)
		assert.Equal(t, now.Add(wait*time.Second), b.Next())
		assert.False(t, b.Due(b.Next().Add(-1)))
		now = b.Next()
		assert.True(t, b.Due(now))
	}
	b.Postpone(now)
	assert.Equal(t, now.Add(5*time.Second), b.Next(), "as long as the last time")
	b.Reset()
	assert.True(t, b.Due(now))
	b.Postpone(now)
	assert.True(t, b.Due(now), "nothing was deferred since")
	b.Defer(now)
	assert.Equal(t, now.Add(time.Second), b.Next(), "from the beginning")
}
