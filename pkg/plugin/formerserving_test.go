package plugin

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// countedCluster has claims of an earlier driver name that are allocated and not prepared, and counts how often all claims are listed.
type countedCluster struct {
	Cluster
	allocated, fails atomic.Bool
	lists            atomic.Int32
}

func (c *countedCluster) Allocated(context.Context, kube.AllocatedQuery) (*kube.AllocatedPage, error) {
	c.lists.Add(1)
	if c.fails.Load() {
		return nil, errors.New("the API server did not answer")
	}
	page := &kube.AllocatedPage{Devices: map[gpu.PoolDevice]bool{}}
	if c.allocated.Load() {
		page.Devices[gpu.PoolDevice{Device: "gpu"}] = true
	}
	return page, nil
}

// TestDrain_AllocatedWithoutRecord_ListedSeldom: each node of the cluster would list all claims every minute. A claim that is unprepared is noticed
// at once.
func TestDrain_AllocatedWithoutRecord_ListedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, _ := renamed(t)
		p := n.build(t)
		cluster := &countedCluster{Cluster: p.former.api.Cluster}
		p.former.api.Cluster = cluster
		cluster.allocated.Store(true)
		signal, drained := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(drained)
			p.former.drain(t.Context(), nameBefore, signal)
		}()
		day := func() int32 {
			before := cluster.lists.Load()
			time.Sleep(24 * time.Hour)
			return cluster.lists.Load() - before
		}
		assert.InDelta(t, 140, day(), 20)
		assert.InDelta(t, 132, day(), 15, "once in 10 to 12 minutes")
		before := cluster.lists.Load()
		signal <- struct{}{}
		synctest.Wait()
		assert.Equal(t, before+1, cluster.lists.Load())
		time.Sleep(2 * time.Minute)
		assert.Equal(t, before+2, cluster.lists.Load(), "more may follow soon")
		cluster.allocated.Store(false)
		time.Sleep(drainPeriod)
		<-drained
	})
}

// TestDrain_RecordsOrFailure_CheckedEveryPeriod: neither lists all claims. An end without a signal, as in another process, is noticed soon.
func TestDrain_RecordsOrFailure_CheckedEveryPeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, claims := renamed(t, "old")
		p := n.build(t)
		cluster := &countedCluster{Cluster: p.former.api.Cluster}
		p.former.api.Cluster = cluster
		cluster.fails.Store(true)
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			p.former.drain(t.Context(), nameBefore, nil)
		}()
		time.Sleep(24 * time.Hour)
		assert.Zero(t, cluster.lists.Load())
		require.NoError(t, os.Remove(n.before("claims/"+string(claims[0].UID)+".json")))
		time.Sleep(2 * time.Minute)
		assert.Positive(t, cluster.lists.Load())
		time.Sleep(24 * time.Hour)
		cluster.fails.Store(false)
		time.Sleep(2 * time.Minute)
		select {
		case <-drained:
		default:
			assert.Fail(t, "it is noticed within two minutes that nothing is left")
		}
		<-drained
	})
}
