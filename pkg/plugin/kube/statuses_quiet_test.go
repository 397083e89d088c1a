package kube_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// calls stands for the kubelet's calls: in flight until they pause.
type calls struct {
	paused atomic.Bool
	asked  chan struct{}
}

func (c *calls) quiet() time.Duration {
	select {
	case c.asked <- struct{}{}:
	default:
	}
	if c.paused.Load() {
		return time.Hour
	}
	return 0
}

func TestStatuses_CallsInFlight_WrittenWhenTheyPause(t *testing.T) {
	t.Parallel()
	w := newWriter(t, claimWith(result(driverName, "gpu-a")), nil)
	c := &calls{asked: make(chan struct{})}
	w.SetDelay(time.Millisecond)
	w.SetQuiet(c.quiet, func() time.Time { return day })
	w.run(t)
	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for range 3 {
		select {
		case <-c.asked:
		case <-ctx.Done():
			require.NoError(t, ctx.Err(), "the writer does not check again whether calls are in flight")
		}
	}
	assert.Empty(t, w.server.Actions(), "the API server belongs to the claims that are being prepared")
	c.paused.Store(true)
	w.drain(t)
	assert.Equal(t, kube.StatusesStats{Written: 1}, w.Stats())
}

func TestStatuses_CallsNeverPause_WrittenAfterTheHold(t *testing.T) {
	t.Parallel()
	w := newWriter(t, claimWith(result(driverName, "gpu-a")), nil)
	var seconds atomic.Int64
	w.SetDelay(time.Millisecond)
	w.SetQuiet(func() time.Duration { return 0 }, func() time.Time { return day.Add(time.Duration(seconds.Add(1)) * time.Second) })
	w.run(t)
	w.Ready(claimRef, []kube.Device{device("gpu-a")})
	w.drain(t)
	assert.Equal(t, kube.StatusesStats{Written: 1}, w.Stats())
	assert.LessOrEqual(t, seconds.Load(), int64(5), "a report is written no later than 2 s after it was made")
}
