package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestOneListProvesLittle: a kubelet that was just started lists nothing, and answers all the same.
func TestOneListProvesLittle(t *testing.T) {
	t.Parallel()
	w, now := watch{seen: map[string]time.Time{}}, time.Now()
	hear := func(after time.Duration, devices ...string) ([]string, bool) {
		now = now.Add(after)
		return w.hear(devices, now)
	}
	_, sure := hear(0, "a", "b")
	assert.False(t, sure)
	inUse, sure := hear(Period)
	assert.Equal(t, []string{"a", "b"}, inUse, "what was listed a minute ago")
	assert.False(t, sure)
	for range 3 {
		_, sure = hear(Period, "b")
		assert.False(t, sure)
	}
	inUse, sure = hear(Period, "b")
	assert.True(t, sure)
	assert.Equal(t, []string{"a", "b"}, inUse)
	inUse, _ = hear(time.Second, "b")
	assert.Equal(t, []string{"b"}, inUse)

	w.miss()
	_, sure = hear(Period)
	assert.False(t, sure, "it may have been started anew")
	_, sure = hear(longestGap + 1)
	assert.False(t, sure)
}
