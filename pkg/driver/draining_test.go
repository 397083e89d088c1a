package driver

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

var wholeOfFirst = gpu.PoolDevice{Pool: "n0", Device: first}

// turned is a desk that offered its first GPU whole, runs, and has just read that slices are wanted.
func turned(t *testing.T) (d *desk, stop func()) {
	t.Helper()
	d = opened(t, onlyWhole)
	stop = d.runs(t)
	after(2 * rereadFirst)
	assert.Equal(t, []string{"n0", first}, d.offered(t))
	d.entries = onlySlices
	d.Reload()
	after(2 * debounce)
	return d, stop
}

func (d *desk) leaving(t *testing.T) map[gpu.PoolDevice]bool {
	t.Helper()
	present, err := d.Present()
	require.NoError(t, err)
	return present.Leaving
}

// TestAGPUChangesWhenNobodyHasIt: a claim may have been given it until the schedulers knew better, and may not be prepared yet.
func TestAGPUChangesWhenNobodyHasIt(t *testing.T) {
	t.Parallel()
	cut := []string{ownPool, oneSlice, big}
	for name, c := range map[string]struct {
		held func(d *desk)
		free func(d *desk)
	}{
		"the API server has no taint yet": {func(d *desk) { d.untainted = true }, func(d *desk) { d.untainted = false }},
		"it does not answer":              {func(d *desk) { d.dead = errLater }, func(d *desk) { d.dead = nil }},
		"a claim has it, not prepared":    {func(d *desk) { d.allocated = map[gpu.PoolDevice]bool{wholeOfFirst: true} }, func(d *desk) { d.allocated = nil }},
		"a claim has it, prepared":        {func(d *desk) { d.records = append(d.records, holds("n0", first)) }, func(d *desk) { d.records = nil }},
		"it cannot be saved":              {func(d *desk) { d.saved.err = errBad }, func(d *desk) { d.saved.err = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := opened(t, onlyWhole)
				stop := d.runs(t)
				defer stop()
				after(2 * rereadFirst)
				c.held(d)
				d.entries = onlySlices
				d.Reload()
				after(remindAfter - time.Minute)
				assert.Equal(t, []string{"n0", first}, d.offered(t))
				assert.Equal(t, map[gpu.PoolDevice]bool{wholeOfFirst: true}, d.leaving(t))
				assert.Less(t, d.listed, 30, "all claims of the cluster are not read all the time")
				assert.Equal(t, gpu.Offer{Whole: true}, d.saved.layout[firstUUID])
				c.free(d)
				after(askMax + settleTime + 2*drainLook + pageInterval)
				assert.Equal(t, cut, d.offered(t))
				assert.Empty(t, d.leaving(t))
				assert.Equal(t, gpu.Offer{MIG: []string{"1g.10gb", "3g.40gb"}}, d.saved.layout[firstUUID])
				assert.Empty(t, d.events())
			})
		})
	}
}

func TestAFreeGPUChangesAfterTheSettleTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		require.Equal(t, map[gpu.PoolDevice]bool{wholeOfFirst: true}, d.leaving(t))
		after(settleTime - time.Second)
		assert.Equal(t, []string{"n0", first}, d.offered(t))
		assert.Zero(t, d.listed, "claims are read when that can help")
		after(2*time.Second + drainLook + pageInterval)
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t))
		assert.Equal(t, 1, d.listed)
	})
}

// TestAGPUThatGoesAwayIsNotAskedAbout, however long it stays away, and goes on to what is wanted when it returns.
func TestAGPUThatGoesAwayIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		assert.Equal(t, 1, d.Changing())
		all := d.machine.gpus
		d.machine.change(t, d.ports.Inventory, func() { d.machine.gpus = all[1:] })
		after(10 * time.Minute)
		assert.Zero(t, d.listed)
		assert.Zero(t, d.Changing())
		d.machine.change(t, d.ports.Inventory, func() { d.machine.gpus = all })
		assert.Equal(t, []string{"n0", first}, d.offered(t))
		assert.Equal(t, map[gpu.PoolDevice]bool{wholeOfFirst: true}, d.leaving(t))
		after(time.Minute)
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t))
		assert.Equal(t, 1, d.listed)
	})
}

// TestAGPUIsSeenAsItIsWhenItChanges: a slice that came and went since the last look left the GPU in MIG mode.
func TestAGPUIsSeenAsItIsWhenItChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, onlySlices)
		stop := d.runs(t)
		defer stop()
		d.machine.mu.Lock()
		d.machine.gpus = slices.Clone(d.machine.gpus)
		d.machine.gpus[0].MIG = &gpu.MIG{Mode: gpu.MIGMode{Enabled: true}, Profiles: d.machine.gpus[0].MIG.Profiles}
		d.machine.mu.Unlock()
		d.entries = onlyWhole
		d.Reload()
		after(settleTime)
		node, _, err := d.Now()
		require.NoError(t, err)
		assert.False(t, node.GPUs[0].MIG.Mode.Enabled, "nobody has looked since")
		after(3*drainLook + pageInterval)
		assert.Equal(t, []string{"n0", first}, d.offered(t))
		node, _, err = d.Now()
		require.NoError(t, err)
		assert.True(t, node.GPUs[0].MIG.Mode.Enabled)
	})
}

func TestAChangeIsTakenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		assert.NotEmpty(t, d.leaving(t))
		d.entries = onlyWhole
		d.Reload()
		after(time.Minute)
		assert.Equal(t, []string{"n0", first}, d.offered(t))
		assert.Empty(t, d.leaving(t))
		assert.Zero(t, d.listed)
	})
}

// TestWhatMayBeSavedIsSavedAgain: a save that failed late, of a change that is then taken back, is not what a restart finds.
func TestWhatMayBeSavedIsSavedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		d.saved.untold = errLater
		for range (settleTime + pageInterval) / drainLook * 10 {
			if !d.saved.layout[firstUUID].Whole {
				break
			}
			after(drainLook / 5)
		}
		require.NotEqual(t, gpu.Offer{Whole: true}, d.saved.layout[firstUUID])
		require.Equal(t, []string{"n0", first}, d.offered(t))
		d.saved.untold = nil
		d.entries = onlyWhole
		d.Reload()
		after(time.Minute)
		assert.Equal(t, gpu.Offer{Whole: true}, d.saved.layout[firstUUID])
	})
}

// TestWhatJoinsNeedsNoWaiting: nothing leaves, and counters keep what joins from what is held.
func TestWhatJoinsNeedsNoWaiting(t *testing.T) {
	t.Parallel()
	d := opened(t, onlyBig, holds(ownPool, big, "3g.40gb"))
	assert.Equal(t, []string{ownPool, big}, d.offered(t))
	d.entries = both
	require.True(t, d.Load(t.Context()))
	assert.Equal(t, []string{ownPool, first, oneSlice, big}, d.offered(t))
	assert.Empty(t, d.leaving(t))
}

// TestARestartGoesOn with a change from what was offered, and only the process that publishes does.
func TestARestartGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		stop()
		d.restart(t)
		require.True(t, d.Load(t.Context()))
		assert.Equal(t, []string{"n0", first}, d.offered(t))
		assert.Equal(t, map[gpu.PoolDevice]bool{wholeOfFirst: true}, d.leaving(t))
		stop = inBackground(t, func(ctx context.Context) error { return d.Run(ctx, func() {}) })
		after(time.Minute)
		assert.Equal(t, []string{"n0", first}, d.offered(t), "another process publishes")
		d.saved.layout = gpu.Layout{firstUUID: {MIG: []string{"1g.10gb", "3g.40gb"}}}
		d.Lead(true)
		d.Probe(t.Context())
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t), "which had come that far")
		stop()
	})
}

func TestABadConfigurationAtStartTakesNothingBack(t *testing.T) {
	t.Parallel()
	d := opened(t, onlySlices)
	d.saved.layout = gpu.Layout{firstUUID: {MIG: []string{"3g.40gb"}}}
	d.restart(t)
	d.read = errBad
	require.False(t, d.Load(t.Context()))
	d.Probe(t.Context())
	assert.Equal(t, []string{ownPool, big}, d.offered(t))
	assert.Equal(t, []string{"Warning NodeConfigInvalid Configure: GPUs are offered as before this start: " + errBad.Error()}, d.events())
	assert.Equal(t, []string{"NodeConfigInvalid"}, d.Problems())

	d.saved.err = errBad
	d.restart(t)
	assert.Equal(t, []string{"Warning LayoutStateUnreadable Configure: GPUs that nobody uses may be offered otherwise at once: " + errBad.Error()}, d.events())
}

// TestAConfigurationThatCannotBeReadAtStart takes nothing back, however long that lasts, and keeps no claim waiting for as long.
func TestAConfigurationThatCannotBeReadAtStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, onlySlices)
		d.saved.layout = gpu.Layout{firstUUID: {MIG: []string{"3g.40gb"}}}
		d.restart(t)
		d.read = errLater
		require.False(t, d.Load(t.Context()))
		_, _, err := d.Now()
		require.ErrorIs(t, err, errLater, "which may pass at once")
		stop := d.runs(t)
		defer stop()
		after(time.Minute)
		assert.Equal(t, []string{ownPool, big}, d.offered(t))
		assert.Equal(t, []string{"Warning NodeConfigUnavailable Configure: GPUs are offered as before this start: " + errLater.Error()}, d.events())
		after(time.Hour)
		assert.Equal(t, []string{ownPool, big}, d.offered(t))
		assert.Empty(t, d.events())
		d.read = nil
		after(time.Minute)
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t))
		assert.Equal(t, []string{good}, d.events())

		d.saved.layout = nil
		d.restart(t)
		d.read = errLater
		stopNew := d.runs(t)
		defer stopNew()
		after(time.Hour)
		_, _, err = d.Now()
		require.ErrorIs(t, err, errLater, "nothing was offered before")
		assert.Equal(t, []string{"Warning NodeConfigUnavailable Configure: No change of what is offered is published: " + errLater.Error()}, d.events())
	})
}

// TestReloadKeepsTheLastGood: what is wrong is told once, and what is right again too.
func TestReloadKeepsTheLastGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, both)
		stop := d.runs(t)
		defer stop()
		refused := []string{"Warning NodeConfigInvalid Configure: The configuration that was read before stays: " + errBad.Error()}
		for range 2 {
			d.read = errBad
			d.Reload()
			after(time.Minute)
			assert.Equal(t, refused, d.events())
			assert.Equal(t, []string{"NodeConfigInvalid"}, d.Problems())
			d.read = errLater
			after(time.Minute)
			assert.Equal(t, []string{"NodeConfigUnavailable"}, d.Problems())
			assert.Len(t, d.events(), 1)
			assert.Equal(t, []string{ownPool, first, oneSlice, big}, d.offered(t))
			d.read = nil
			d.Reload()
			after(time.Minute)
			assert.Equal(t, []string{good}, d.events())
			assert.Empty(t, d.Problems())
		}
	})
}

// TestABadConfigurationIsNotReadAllTheTime while a GPU that is to change is looked at, and not at all where a change of it is told.
func TestABadConfigurationIsNotReadAllTheTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		watched bool
		read    error
		entries string
		least   int
		most    int
	}{
		"these GPUs cannot, not watched":  {false, nil, `[{modes: [mig]}]`, 50, 70}, // which the other GPU cannot
		"these GPUs cannot, watched":      {true, nil, `[{modes: [mig]}]`, 1, 1},
		"the text is refused, watched":    {true, errBad, onlySlices, 1, 1},
		"it cannot be read now, watched":  {true, errLater, onlySlices, 50, 70},
		"the text is refused, unwatched":  {false, errBad, onlySlices, 50, 70},
		"all is well and nothing watches": {false, nil, onlySlices, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, onlyWhole)
				d.watched, d.records = c.watched, append(d.records, holds("n0", first))
				d.restart(t)
				require.True(t, d.Load(t.Context()))
				d.reads = 0
				var changes atomic.Int64
				d.Lead(true)
				stop := inBackground(t, func(ctx context.Context) error { return d.Run(ctx, func() { changes.Add(1) }) })
				defer stop()
				d.entries, d.read = c.entries, c.read
				d.Reload()
				after(10 * time.Minute)
				assert.GreaterOrEqual(t, d.reads, c.least)
				assert.LessOrEqual(t, d.reads, c.most)
				assert.LessOrEqual(t, int(changes.Load()), d.reads+1, "and counters were asked for")
				d.entries, d.read, d.records = onlySlices, nil, nil
				d.Reload()
				after(time.Minute)
				assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t), "it is read when it is another one")
			})
		})
	}
}

// TestOtherGPUsMayBeWhatTheConfigurationIsFor, for which it need not be read anew.
func TestOtherGPUsMayBeWhatTheConfigurationIsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, `[{modes: [mig]}]`)
		d.watched = true
		d.restart(t)
		require.True(t, d.Load(t.Context()))
		d.Probe(t.Context())
		stop := d.runs(t)
		defer stop()
		after(time.Minute)
		assert.Equal(t, []string{"NodeConfigInvalid"}, d.Problems())
		d.machine.change(t, d.ports.Inventory, func() { d.machine.gpus = d.machine.gpus[:1] })
		after(time.Minute)
		assert.Empty(t, d.Problems())
		assert.Equal(t, 1, d.reads)
	})
}

func TestServersWithoutTaints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, onlyWhole)
		d.untainted = true
		d.Untaint()
		stop := d.runs(t)
		defer stop()
		d.entries = onlySlices
		d.Reload()
		after(settleTime + 3*drainLook + debounce + pageInterval)
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t))
	})
}

// TestSlicesInUseAreNotOfferedAsAWhole where the API server has stopped keeping counters.
func TestSlicesInUseAreNotOfferedAsAWhole(t *testing.T) {
	t.Parallel()
	d := opened(t, both, holds(ownPool, oneSlice, "1g.10gb"))
	d.Disjoin()
	assert.Equal(t, []string{ownPool, oneSlice}, d.offered(t))
	d.records = append(d.records, holds(ownPool, first))
	d.seen = nil
	assert.Equal(t, []string{ownPool}, d.offered(t), "what cannot be is not offered")
	d.records, d.seen = nil, nil
	assert.Equal(t, []string{ownPool, first}, d.offered(t))
}
