package layout

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	second = "gpu-bbbbbbbb"
	// partitionedAndShared changes both GPUs.
	partitionedAndShared = `[{select: {indices: [0]}, modes: [mig]}, {modes: [timeslice], timeSlice: {replicas: 2}}]`
)

var wholeOfSecond = gpu.PoolDevice{Pool: "n0", Device: second}

// holdsSecond is the record of a claim for the second GPU.
func (d *fixture) holdsSecond() *checkpoint.Record {
	return &checkpoint.Record{State: checkpoint.Done, Results: []checkpoint.Result{
		{Pool: "n0", Device: second, Type: gpu.TypeGPU, GPUUUID: d.machine.GPUs[1].UUID},
	}}
}

// TestDrain_SeveralGPUs_EachWaitsForItself: one that is allocated to a claim that is not prepared is checked more and more seldom, and another
// one changes when its own pod exits.
func TestDrain_SeveralGPUs_EachWaitsForItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, onlyWhole)
		stop := d.runs(t)
		defer stop()
		after(2 * retryFirst)
		d.allocated = map[gpu.PoolDevice]bool{wholeOfFirst: true}
		d.records = append(d.records, d.holdsSecond())
		d.entries = partitionedAndShared
		d.Reload()
		after(5*time.Minute + 10*time.Second)
		assert.Equal(t, 2, d.now().Status.Changing)
		d.records = nil
		after(2*drainInterval + pageInterval)
		assert.Equal(t, []string{"timeslice"}, d.others(t))
		assert.Equal(t, []string{"n0", first}, d.advertised(t))
		d.allocated = nil
		after(checkMax + drainInterval + pageInterval)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
	})
}

// TestDrain_SeveralGPUs_CheckedTogether: an answer about one of them is one about all, so that several cost no more than one.
func TestDrain_SeveralGPUs_CheckedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, onlyWhole)
		stop := d.runs(t)
		defer stop()
		after(2 * retryFirst)
		d.allocated = map[gpu.PoolDevice]bool{wholeOfFirst: true, wholeOfSecond: true}
		d.records = append(d.records, d.holdsSecond())
		d.entries = partitionedAndShared
		d.Reload()
		after(5*time.Minute + 10*time.Second)
		d.records = nil
		after(5 * time.Minute)
		d.listed = 0
		after(10 * time.Minute)
		assert.InDelta(t, 10*time.Minute/(checkMax+pageInterval), d.listed, 1)
		assert.Equal(t, 2, d.now().Status.Changing)
	})
}

// TestDrain_TaintsOfOneGPUMissing_OthersChange: a GPU whose own are stored needs no others.
func TestDrain_TaintsOfOneGPUMissing_OthersChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, onlyWhole)
		d.records = append(d.records, holds("n0", first))
		stop := d.runs(t)
		defer stop()
		after(2 * retryFirst)
		d.entries = onlyMIG
		d.Reload()
		after(time.Minute)
		d.lost = second
		d.entries = partitionedAndShared
		d.Reload()
		after(5 * time.Minute)
		assert.Equal(t, 2, d.now().Status.Changing)
		d.records = nil
		after(2*drainInterval + pageInterval)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
		assert.Equal(t, []string{"gpu"}, d.others(t))
	})
}
