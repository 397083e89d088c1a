package layout

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

const changedFeatures = "Normal ClusterFeaturesChanged Configure: GPUs are advertised otherwise, because features of the cluster have changed: shared counters are "

// TestConnectionLost_ClusterUpgradedAndRolledBack_LayoutFollows without a restart of the plugin, and nothing is probed in between.
func TestConnectionLost_ClusterUpgradedAndRolledBack_LayoutFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, both)
		d.uncountered = true
		assert.True(t, d.load(t))
		d.probe(t)
		stop := d.runs(t)
		defer stop()
		d.events()
		probes := d.probes
		assert.Equal(t, []string{ownPool, first}, d.advertised(t))

		d.uncountered = false
		after(24 * time.Hour)
		assert.Equal(t, probes, d.probes, "nothing is periodic")
		d.ConnectionLost()
		d.ConnectionLost()
		after(lossSpread)
		assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
		assert.Equal(t, []string{changedFeatures + "supported, shares beside other devices of a GPU are supported, device taints are supported"}, d.events())
		assert.Equal(t, probes+1, d.probes)

		d.uncountered, d.untainted = true, true
		d.records = []*checkpoint.Record{holds(ownPool, small6, "1g.10gb")}
		d.ConnectionLost()
		after(lossInterval - 2*lossSpread)
		assert.Equal(t, probes+1, d.probes, "connections that are lost all the time lead to few probes")
		after(4 * lossSpread)
		assert.Equal(t, []string{ownPool, small6}, d.advertised(t), "what is in use stays")
		notes := d.events()
		require.Len(t, notes, 2)
		assert.Contains(t, notes[0], "Warning PartitionableDevicesDisabled Configure: ")
		assert.Contains(t, notes[1], changedFeatures+"not supported")
		assert.Equal(t, []bool{true, false}, d.probed)
		after(24 * time.Hour)
		assert.Equal(t, probes+2, d.probes)
	})
}

// TestConnectionLost_ServerAway_ProbedWhenItAnswers, and a layout that is known stays until then, with no Event.
func TestConnectionLost_ServerAway_ProbedWhenItAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, both)
		stop := d.runs(t)
		defer stop()
		d.unknown = errLater
		d.ConnectionLost()
		after(10 * time.Minute)
		assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
		assert.Empty(t, d.events())
		d.unknown, d.uncountered = nil, true
		after(retryMax)
		assert.Equal(t, []string{ownPool, first}, d.advertised(t))
		assert.Equal(t, []bool{true}, d.probed)
	})
}

// TestFieldsDropped_AnotherServerStoresThem_FewTries: one of several API servers may drop fields that the server answering probes stores.
func TestFieldsDropped_AnotherServerStoresThem_FewTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, both)
		stop := d.runs(t)
		defer stop()
		probes := d.probes
		wait := dropFirst
		for range dropTries {
			for range 8 { // one for each pool
				d.FieldsDropped()
				d.CountersUnsupported()
			}
			after(wait - time.Second)
			assert.Equal(t, []string{ownPool, first}, d.advertised(t))
			after(lossSpread + time.Second)
			assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
			wait = min(2*wait, dropMax)
		}
		d.FieldsDropped()
		d.CountersUnsupported()
		after(24 * time.Hour)
		assert.Equal(t, []string{ownPool, first}, d.advertised(t))
		assert.Equal(t, probes+dropTries, d.probes)
		d.ConnectionLost()
		after(lossSpread)
		assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
	})
}

// TestFieldsDropped_NothingChanged_NotPublishedAgain: fields that the server drops anyway would be dropped again, for ever.
func TestFieldsDropped_NothingChanged_NotPublishedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, both)
		stop := d.runs(t)
		defer stop()
		probes := d.probes
		d.TaintsUnsupported()
		d.untainted = true
		d.FieldsDropped()
		after(24 * time.Hour)
		assert.Equal(t, probes+1, d.probes)
		assert.Empty(t, d.probed)
	})
}

// TestReprobe_ThousandNodes_Spread: all nodes lose their connections at once when an API server is restarted.
func TestReprobe_ThousandNodes_Spread(t *testing.T) {
	t.Parallel()
	bySecond, now := map[int64]int{}, time.Now()
	for i := range 1000 {
		r := newReprobe()
		r.requested(request{lost: true}, fmt.Sprintf("gpu-node-%04d", i), now)
		bySecond[int64(r.due.Sub(now)/time.Second)]++
	}
	assert.LessOrEqual(t, len(bySecond), int(lossSpread/time.Second))
	for second, nodes := range bySecond {
		assert.LessOrEqual(t, nodes, 40, "second %d", second)
	}
}
