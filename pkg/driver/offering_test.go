package driver

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
)

var (
	errLater = errors.New("the API server does not answer")
	errBad   = errors.New("file node.yaml: the configuration is empty")
)

// TestSharesThatAreHeldStayAsMany: what claims hold says how many there were.
func TestSharesThatAreHeldStayAsMany(t *testing.T) {
	t.Parallel()
	d := opened(t, onlyWhole, holdsShare())
	for _, device := range d.Devices() {
		if shared, ok := device.(gpu.TimeSliced); ok {
			assert.Equal(t, 3, shared.Replicas)
			assert.Equal(t, "gpu-shared", shared.ShareName)
			return
		}
	}
	t.Error("it is not offered any more")
}

func TestTheConfigurationMakesTheLayout(t *testing.T) {
	t.Parallel()
	for entries, want := range map[string][]string{
		turns: {ownPool, first, first + "-timeslice"},
		"":    {"n0", first}, onlyWhole: {"n0", first}, onlySlices: {ownPool, oneSlice, big}, both: {ownPool, first, oneSlice, big}, onlyBig: {ownPool, big},
	} {
		d := opened(t, entries)
		assert.Equal(t, want, d.offered(t), entries)
		assert.Empty(t, d.events())
		assert.Len(t, d.Devices(), len(want)-1+1, "with the other GPU")
	}
}

// TestAHeldGPUKeepsItsOfferAndPool: else the scheduler would take what is held for free.
func TestAHeldGPUKeepsItsOfferAndPool(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		record        *checkpoint.Record
		entries       string
		held, freeing []string
	}{
		"the whole GPU, where slices are wanted": {
			holds("n0", first), onlySlices, []string{"n0", first}, []string{ownPool, oneSlice, big},
		},
		"the whole GPU, where slices are wanted too": {
			holds("n0", first), both, []string{"n0", first}, []string{ownPool, first, oneSlice, big},
		},
		"the whole GPU beside slices, where they are not wanted": {
			holds(ownPool, first), onlyWhole, []string{ownPool, first}, []string{"n0", first},
		},
		"the whole GPU beside slices, where it is not wanted": {
			holds(ownPool, first), onlyBig, []string{ownPool, first, big}, []string{ownPool, big},
		},
		"a slice, where none are wanted": {
			holds(ownPool, oneSlice, "1g.10gb"), onlyWhole, []string{ownPool, first, oneSlice}, []string{"n0", first},
		},
		"a share, where none are wanted": {
			holdsShare(), both, []string{ownPool, first, first + "-timeslice", oneSlice, big}, []string{ownPool, first, oneSlice, big},
		},
		"a share, where the whole GPU is wanted": {
			holdsShare(), onlyWhole, []string{ownPool, first, first + "-timeslice"}, []string{"n0", first},
		},
		"a slice, where others are wanted": {
			holds(ownPool, oneSlice, "1g.10gb"), onlyBig, []string{ownPool, oneSlice, big}, []string{ownPool, big},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := opened(t, c.entries, c.record)
				assert.Equal(t, c.held, d.offered(t))
				stop := d.runs(t)
				defer stop()
				after(time.Minute)
				assert.Equal(t, c.held, d.offered(t), "as long as it is held")
				assert.Equal(t, 1, d.Changing())
				d.records = nil
				after(2*drainLook + pageInterval)
				assert.Equal(t, c.freeing, d.offered(t))
				assert.Zero(t, d.Changing())
			})
		})
	}
}

func TestWhatDoesNotHoldAGPU(t *testing.T) {
	t.Parallel()
	admin, elsewhere := holds("n0", first), holds("n0", first)
	admin.Results[0].Admin, elsewhere.Results[0].GPUUUID = true, "GPU-other"
	d := opened(t, both, admin, elsewhere, holds(ownPool, big, "3g.40gb"), holds(ownPool, oneSlice, "1g.10gb"))
	assert.Equal(t, []string{ownPool, first, oneSlice, big}, d.offered(t))
	assert.Zero(t, d.Changing())
}

func TestTheConfigurationIsReadUntilItIsGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, onlySlices)
		_, _, err := d.Now()
		require.EqualError(t, err, "the configuration of node n0 was not read yet")
		d.read = errLater
		assert.False(t, d.Load(t.Context()))
		_, _, err = d.Now()
		require.ErrorIs(t, err, errLater, "nothing is known, so nothing is offered")
		assert.Empty(t, d.Devices())
		assert.Empty(t, d.events())

		var changes atomic.Int64
		stop := inBackground(t, func(ctx context.Context) error { return d.Run(ctx, func() { changes.Add(1) }) })
		d.read = errBad
		after(time.Minute)
		assert.Equal(t, []string{"n0", first}, d.offered(t), "what people must mend keeps no GPU away")
		assert.Equal(t, []string{"Warning NodeConfigInvalid Configure: GPUs are offered whole: file node.yaml: the configuration is empty"}, d.events(), "once")
		d.read = nil
		after(2 * rereadMax)
		assert.Equal(t, []string{"n0", first}, d.offered(t), "who does not publish changes nothing")
		d.Lead(true)
		after(3 * settleTime)
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t))
		assert.Equal(t, []string{good}, d.events())
		before := changes.Load()
		after(time.Hour)
		assert.Equal(t, before, changes.Load(), "what is good is not read again")
		stop()
	})
}

func TestABadEntryConcernsItsGPUsAlone(t *testing.T) {
	t.Parallel()
	d := opened(t, `[{modes: [whole, mig]}]`)
	assert.Equal(t, []string{ownPool, first, oneSlice, big}, d.offered(t))
	const text = "NodeConfig: gpus[0].modes[1]: NVIDIA L40S has no MIG; remove mode mig, or give such GPUs an entry of their own without it"
	assert.Equal(t, []string{"Warning NodeConfigInvalid Configure: GPU 1 stays as it was offered, whole if it is new; all else is in force: " + text}, d.events())
	assert.False(t, d.config.fits, "it is read again")
	d.read = errBad
	assert.False(t, d.Load(t.Context()))
	assert.Equal(t, []string{ownPool, first, oneSlice, big}, d.offered(t))
	assert.Equal(t, []string{"Warning NodeConfigInvalid Configure: The configuration that was read before stays: " + errBad.Error()}, d.events())
	d.read, d.entries = nil, both
	assert.True(t, d.Load(t.Context()))
	assert.Equal(t, []string{ownPool, first, oneSlice, big}, d.offered(t))
	assert.Equal(t, []string{good}, d.events())
}

func TestWithoutRecordsNothingIsKnown(t *testing.T) {
	t.Parallel()
	d := opened(t, both)
	d.ports.Records = func() ([]*checkpoint.Record, error) { return nil, errBad }
	d.seen = nil
	_, _, err := d.Now()
	require.ErrorIs(t, err, errBad)
	require.ErrorContains(t, err, "which GPUs are in use cannot be read now")
}

// TestPartsWaitForTheAPIServersAnswer, which is asked for again and again, and not all the time.
func TestPartsWaitForTheAPIServersAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, both)
		d.unknown = errLater
		require.True(t, d.Load(t.Context()))
		d.Probe(t.Context())
		_, _, err := d.Now()
		require.ErrorIs(t, err, errCounters)
		var changes atomic.Int64
		stop := inBackground(t, func(ctx context.Context) error { return d.Run(ctx, func() { changes.Add(1) }) })
		after(time.Minute)
		assert.Less(t, d.asked, 15)
		assert.Zero(t, changes.Load())
		d.unknown = nil
		after(2 * rereadMax)
		assert.EqualValues(t, 1, changes.Load())
		assert.Equal(t, []string{ownPool, first, oneSlice, big}, d.offered(t))
		stop()
		assert.Len(t, d.events(), 1, "after some patience")

		d.Disjoin()
		assert.Equal(t, []string{ownPool, first}, d.offered(t))
		assert.Len(t, d.events(), 1)
	})
	d := opened(t, onlyWhole)
	assert.Zero(t, d.asked, "nobody asks where it does not matter")
}
