package driver

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
	// slicesAndTurns changes both GPUs.
	slicesAndTurns = `[{select: {indices: [0]}, modes: [mig]}, {modes: [timeslice], timeSlice: {replicas: 2}}]`
)

var wholeOfSecond = gpu.PoolDevice{Pool: "n0", Device: second}

// holdsSecond is the record of a claim that has the second GPU.
func (d *desk) holdsSecond() *checkpoint.Record {
	return &checkpoint.Record{State: checkpoint.Done, Results: []checkpoint.Result{
		{Pool: "n0", Device: second, Type: gpu.TypeGPU, GPUUUID: d.machine.gpus[1].UUID},
	}}
}

// TestAGPUWaitsForItselfAlone: one that a claim was given which is not prepared is asked for more and more seldom, and another one changes
// when its own pod ends.
func TestAGPUWaitsForItselfAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, onlyWhole)
		stop := d.runs(t)
		defer stop()
		after(2 * rereadFirst)
		d.allocated = map[gpu.PoolDevice]bool{wholeOfFirst: true}
		d.records = append(d.records, d.holdsSecond())
		d.entries = slicesAndTurns
		d.Reload()
		after(5*time.Minute + 10*time.Second)
		assert.Equal(t, 2, d.Changing())
		d.records = nil
		after(2*drainLook + pageInterval)
		assert.Equal(t, []string{"timeslice"}, d.others(t))
		assert.Equal(t, []string{"n0", first}, d.offered(t))
		d.allocated = nil
		after(askMax + drainLook + pageInterval)
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t))
	})
}

// TestGPUsAskTogether: an answer about one of them is one about all, so that several cost no more than one.
func TestGPUsAskTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, onlyWhole)
		stop := d.runs(t)
		defer stop()
		after(2 * rereadFirst)
		d.allocated = map[gpu.PoolDevice]bool{wholeOfFirst: true, wholeOfSecond: true}
		d.records = append(d.records, d.holdsSecond())
		d.entries = slicesAndTurns
		d.Reload()
		after(5*time.Minute + 10*time.Second)
		d.records = nil
		after(5 * time.Minute)
		d.listed = 0
		after(10 * time.Minute)
		assert.InDelta(t, 10*time.Minute/(askMax+pageInterval), d.listed, 1)
		assert.Equal(t, 2, d.Changing())
	})
}

// TestTaintsThatAreMissingDelayNoOther: a GPU whose own are there needs none of them.
func TestTaintsThatAreMissingDelayNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, onlyWhole)
		d.records = append(d.records, holds("n0", first))
		stop := d.runs(t)
		defer stop()
		after(2 * rereadFirst)
		d.entries = onlySlices
		d.Reload()
		after(time.Minute)
		d.lost = second
		d.entries = slicesAndTurns
		d.Reload()
		after(5 * time.Minute)
		assert.Equal(t, 2, d.Changing())
		d.records = nil
		after(2*drainLook + pageInterval)
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t))
		assert.Equal(t, []string{"gpu"}, d.others(t))
	})
}
