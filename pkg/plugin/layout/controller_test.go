package layout

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/fakes"
)

var (
	errLater = errors.New("the API server does not answer")
	errBad   = errors.New("file node.yaml: the configuration is empty")
)

// TestController_SharesInUse_CountStays: records say how many there were.
func TestController_SharesInUse_CountStays(t *testing.T) {
	t.Parallel()
	d := opened(t, onlyWhole, holdsShare())
	for _, device := range d.now().Devices() {
		if shared, ok := device.(gpu.TimeSliced); ok {
			assert.Equal(t, 3, shared.Replicas)
			assert.Equal(t, "gpu-shared", shared.ShareName)
			return
		}
	}
	t.Error("it is not advertised any more")
}

func TestController_Configuration_MakesTheLayout(t *testing.T) {
	t.Parallel()
	for entries, want := range map[string][]string{
		shared: {ownPool, first, first + "-timeslice"},
		"":     {"n0", first}, onlyWhole: {"n0", first}, onlyMIG: {ownPool, small6, big}, both: {ownPool, first, small6, big}, onlyBig: {ownPool, big},
	} {
		d := opened(t, entries)
		assert.Equal(t, want, d.advertised(t), entries)
		assert.Empty(t, d.events())
		assert.Len(t, d.now().Devices(), len(want)-1+1, "with the other GPU")
	}
}

// TestController_DevicesInUse_LayoutAndPoolStay: else the scheduler would take the devices in use for free.
func TestController_DevicesInUse_LayoutAndPoolStay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		record        *checkpoint.Record
		entries       string
		held, freeing []string
	}{
		"the whole GPU, where MIG devices are desired": {
			holds("n0", first), onlyMIG, []string{"n0", first}, []string{ownPool, small6, big},
		},
		"the whole GPU, where MIG devices are desired too": {
			holds("n0", first), both, []string{"n0", first}, []string{ownPool, first, small6, big},
		},
		"the whole GPU beside MIG devices, where they are not desired": {
			holds(ownPool, first), onlyWhole, []string{ownPool, first}, []string{"n0", first},
		},
		"the whole GPU beside MIG devices, where it is not desired": {
			holds(ownPool, first), onlyBig, []string{ownPool, first, big}, []string{ownPool, big},
		},
		"a MIG device, where none are desired": {
			holds(ownPool, small6, "1g.10gb"), onlyWhole, []string{ownPool, first, small6}, []string{"n0", first},
		},
		"a share, where none are desired": {
			holdsShare(), both, []string{ownPool, first, first + "-timeslice", small6, big}, []string{ownPool, first, small6, big},
		},
		"a share, where the whole GPU is desired": {
			holdsShare(), onlyWhole, []string{ownPool, first, first + "-timeslice"}, []string{"n0", first},
		},
		"a MIG device, where others are desired": {
			holds(ownPool, small6, "1g.10gb"), onlyBig, []string{ownPool, small6, big}, []string{ownPool, big},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := opened(t, c.entries, c.record)
				assert.Equal(t, c.held, d.advertised(t))
				stop := d.runs(t)
				defer stop()
				after(time.Minute)
				assert.Equal(t, c.held, d.advertised(t), "as long as it is held")
				assert.Equal(t, 1, d.now().Status.Changing)
				d.records = nil
				after(2*drainInterval + pageInterval)
				assert.Equal(t, c.freeing, d.advertised(t))
				assert.Zero(t, d.now().Status.Changing)
			})
		})
	}
}

func TestController_AdminAndOtherGPUs_KeepNothing(t *testing.T) {
	t.Parallel()
	admin, elsewhere := holds("n0", first), holds("n0", first)
	admin.Results[0].Admin, elsewhere.Results[0].GPUUUID = true, "GPU-other"
	d := opened(t, both, admin, elsewhere, holds(ownPool, big, "3g.40gb"), holds(ownPool, small6, "1g.10gb"))
	assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
	assert.Zero(t, d.now().Status.Changing)
}

func TestController_ConfigurationUnavailable_ReadUntilValid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, onlyMIG)
		require.EqualError(t, d.now().Err, "the configuration of node n0 was not read yet")
		d.read = errLater
		assert.False(t, d.load(t))
		require.ErrorIs(t, d.now().Err, errLater, "nothing is known, so nothing is advertised")
		assert.Empty(t, d.now().Devices())
		assert.Empty(t, d.events())

		var changes atomic.Int64
		stop := fakes.Run(t, func(ctx context.Context) error { return d.Run(ctx, func() { changes.Add(1) }) })
		d.read = errBad
		after(time.Minute)
		assert.Equal(t, []string{"n0", first}, d.advertised(t), "an invalid configuration withholds no GPU")
		assert.Equal(t, []string{"Warning NodeConfigInvalid Configure: GPUs are advertised whole: file node.yaml: the configuration is empty"}, d.events(), "once")
		d.read = nil
		after(2 * roundInterval)
		assert.Equal(t, []string{"n0", first}, d.advertised(t), "a process that does not lead changes nothing")
		d.Lead(true)
		after(3 * taintTime)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
		assert.Equal(t, []string{valid}, d.events())
		before := changes.Load()
		after(time.Hour)
		assert.Equal(t, before, changes.Load(), "a valid one is not read again")
		stop()
	})
}

func TestController_InvalidEntry_ConcernsItsGPUsAlone(t *testing.T) {
	t.Parallel()
	d := opened(t, `[{modes: [whole, mig]}]`)
	assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
	const text = "NodeConfig: gpus[0].modes[1]: NVIDIA L40S has no MIG; remove mode mig, or give such GPUs an entry of their own without it"
	assert.Equal(t, []string{"Warning NodeConfigInvalid Configure: GPU 1 stays as it was advertised, whole if it is new; all else is applied: " + text}, d.events())
	assert.False(t, d.worker.state.config.result.fits, "it is read again")
	d.read = errBad
	assert.False(t, d.load(t))
	assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
	assert.Equal(t, []string{"Warning NodeConfigInvalid Configure: The configuration that was read before stays: " + errBad.Error()}, d.events())
	d.read, d.entries = nil, both
	assert.True(t, d.load(t))
	assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
	assert.Equal(t, []string{valid}, d.events())
}

func TestController_RecordsUnreadable_LayoutUnknown(t *testing.T) {
	t.Parallel()
	d := opened(t, both)
	d.options.Records = func() ([]*checkpoint.Record, error) { return nil, errBad }
	d.renew()
	err := d.Snapshot().Err
	require.ErrorIs(t, err, errBad)
}

// TestController_CountersUnknown_ProbedWithBackOff before anything is partitioned.
func TestController_CountersUnknown_ProbedWithBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, both)
		d.unknown = errLater
		require.True(t, d.load(t))
		d.probe(t)
		require.ErrorIs(t, d.now().Err, errCounters)
		var changes atomic.Int64
		stop := fakes.Run(t, func(ctx context.Context) error { return d.Run(ctx, func() { changes.Add(1) }) })
		after(time.Minute)
		assert.Less(t, d.probes, 15)
		assert.Zero(t, changes.Load())
		d.unknown = nil
		after(2 * roundInterval)
		assert.EqualValues(t, 1, changes.Load())
		assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
		stop()
		assert.Len(t, d.events(), 1, "after some failures")

		d.CountersUnsupported()
		assert.Equal(t, []string{ownPool, first}, d.advertised(t))
		assert.Len(t, d.events(), 1)
	})
	d := opened(t, onlyWhole)
	assert.Zero(t, d.probes, "nothing is probed where it does not matter")
}
