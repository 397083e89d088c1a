package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
)

// TestChecks_ManyEvents_WakeOncePerPoll: only an event by which a poll is due sooner wakes the monitor.
func TestChecks_ManyEvents_WakeOncePerPoll(t *testing.T) {
	t.Parallel()
	c, wakes, polls := newChecks(), 0, 0
	for i := range 10_000 { // over 10 s
		now := epoch.Add(time.Duration(i) * time.Millisecond)
		if c.event(gpuA, now) {
			wakes++
		}
		for _, id := range c.take(now) {
			polls++
			c.done(id)
		}
	}
	assert.Equal(t, []int{1, 10}, []int{wakes, polls})
	assert.Equal(t, []gpu.UUID{gpuA}, c.take(epoch.Add(10*time.Second)), "the poll after the last events")
	assert.True(t, c.event(gpuB, epoch), "of another GPU")
}

// TestBook_UnknownXID_NewsThoughAPollIsPlanned: it wakes the monitor, though the next poll is planned already.
func TestBook_UnknownXID_NewsThoughAPollIsPlanned(t *testing.T) {
	t.Parallel()
	b := newBook(finding.Rules{}, func() string { return "load" })
	assert.False(t, b.xid(gpu.HealthEvent{GPU: gpuA, XID: 13}, epoch), "an error of an application")
	assert.True(t, b.xid(gpu.HealthEvent{GPU: gpuA, XID: 999}, epoch), "a code in no table")
	assert.False(t, b.xid(gpu.HealthEvent{GPU: gpuA, XID: 999}, epoch.Add(time.Minute)), "once an hour")
	assert.True(t, b.xid(gpu.HealthEvent{GPU: gpuA, XID: 79}, epoch), "a hardware error")
}
