package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestPodWatch_OneList_Incomplete: a kubelet that has just started answers with an empty list.
func TestPodWatch_OneList_Incomplete(t *testing.T) {
	t.Parallel()
	w, now := podWatch{seen: map[string]time.Time{}}, time.Now()
	add := func(after time.Duration, devices ...string) ([]string, bool) {
		now = now.Add(after)
		return w.add(devices, now)
	}
	_, complete := add(0, "a", "b")
	assert.False(t, complete)
	inUse, complete := add(Period)
	assert.Equal(t, []string{"a", "b"}, inUse, "what was listed a minute ago")
	assert.False(t, complete)
	for range 3 {
		_, complete = add(Period, "b")
		assert.False(t, complete)
	}
	inUse, complete = add(Period, "b")
	assert.True(t, complete)
	assert.Equal(t, []string{"a", "b"}, inUse)
	inUse, _ = add(time.Second, "b")
	assert.Equal(t, []string{"b"}, inUse)

	w.fail()
	_, complete = add(Period)
	assert.False(t, complete, "it may have been restarted")
	_, complete = add(longestGap + 1)
	assert.False(t, complete)
}
