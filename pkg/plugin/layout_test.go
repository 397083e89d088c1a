package plugin

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/fakes"
)

// upgraded is a cluster whose API server stores shared counters and taints from a moment on.
type upgraded struct {
	supportive
	now *atomic.Bool
}

func (u upgraded) PartitionableDevices(context.Context) (bool, error) { return u.now.Load(), nil }

func (u upgraded) DeviceTaints(context.Context) (bool, error) { return u.now.Load(), nil }

// TestLayout_APIServerUpgraded_AdvertisedOtherwise once the connection was lost, without a restart of the plugin.
func TestLayout_APIServerUpgraded_AdvertisedOtherwise(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newWired(t)
		lost, now, connect := make(chan struct{}, 1), &atomic.Bool{}, n.adapters.API
		n.adapters.API = func(ctx context.Context) (API, error) {
			api, err := connect(ctx)
			api.Cluster, api.Lost = upgraded{supportive{api.Cluster}, now}, lost
			return api, err
		}
		p := n.build(t)
		p.Layout().Lead()
		n.slices.leads = true
		defer fakes.Run(t, p.Advertise)()
		time.Sleep(time.Minute)
		synctest.Wait()
		share := n.device(0) + "-timeslice"
		require.NotContains(t, n.slices.published(), share, "GPUs are advertised in one mode")
		now.Store(true)
		lost <- struct{}{}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Contains(t, n.slices.published(), share)
	})
}
