package layout

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
	"github.com/prism-gpu/prism/test/fakes"
)

var wholeOfFirst = gpu.PoolDevice{Pool: "n0", Device: first}

// turned is a fixture that advertised its first GPU whole, runs, and has just read that it is to be advertised in MIG devices.
func turned(t *testing.T) (d *fixture, stop func()) {
	t.Helper()
	d = opened(t, onlyWhole)
	stop = d.runs(t)
	after(2 * retryFirst)
	assert.Equal(t, []string{"n0", first}, d.advertised(t))
	d.entries = onlyMIG
	d.Reload()
	after(changeWait)
	return d, stop
}

func (d *fixture) leaving(t *testing.T) map[gpu.PoolDevice]bool {
	t.Helper()
	s := d.now()
	require.NoError(t, s.Err)
	return s.Leaving
}

// TestDrain_DevicesInUse_LayoutStays until they are released: until the schedulers saw the taint, they may have been allocated to a claim
// that is not prepared yet.
func TestDrain_DevicesInUse_LayoutStays(t *testing.T) {
	t.Parallel()
	cut := []string{ownPool, small6, big}
	for name, c := range map[string]struct {
		held func(d *fixture)
		free func(d *fixture)
	}{
		"the API server has no taint yet": {func(d *fixture) { d.untainted = true }, func(d *fixture) { d.untainted = false }},
		"it does not answer":              {func(d *fixture) { d.dead = errLater }, func(d *fixture) { d.dead = nil }},
		"a claim has it, not prepared":    {func(d *fixture) { d.allocated = map[gpu.PoolDevice]bool{wholeOfFirst: true} }, func(d *fixture) { d.allocated = nil }},
		"a claim has it, prepared":        {func(d *fixture) { d.records = append(d.records, holds("n0", first)) }, func(d *fixture) { d.records = nil }},
		"it cannot be saved":              {func(d *fixture) { d.saved.err = errBad }, func(d *fixture) { d.saved.err = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := opened(t, onlyWhole)
				stop := d.runs(t)
				defer stop()
				after(2 * retryFirst)
				c.held(d)
				d.entries = onlyMIG
				d.Reload()
				after(remindAfter - time.Minute)
				assert.Equal(t, []string{"n0", first}, d.advertised(t))
				assert.Equal(t, map[gpu.PoolDevice]bool{wholeOfFirst: true}, d.leaving(t))
				assert.Less(t, d.listed, 30, "all claims of the cluster are not read all the time")
				assert.Equal(t, gpu.Modes{Whole: true}, d.saved.layout[firstUUID])
				c.free(d)
				after(checkMax + taintTime + 2*drainInterval + pageInterval)
				assert.Equal(t, cut, d.advertised(t))
				assert.Empty(t, d.leaving(t))
				assert.Equal(t, gpu.Modes{MIG: []string{"1g.10gb", "3g.40gb"}}, d.saved.layout[firstUUID])
				assert.Empty(t, d.events())
			})
		})
	}
}

func TestDrain_NothingInUse_LayoutChangesAfterTheTaintTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		require.Equal(t, map[gpu.PoolDevice]bool{wholeOfFirst: true}, d.leaving(t))
		after(taintTime - time.Second)
		assert.Equal(t, []string{"n0", first}, d.advertised(t))
		assert.Zero(t, d.listed, "claims are read when that can help")
		after(2*time.Second + drainInterval + pageInterval)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
		assert.Equal(t, 1, d.listed)
	})
}

// TestDrain_GPUGone_NotChecked, however long it stays away; it continues to the desired layout when it returns.
func TestDrain_GPUGone_NotChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		assert.Equal(t, 1, d.now().Status.Changing)
		d.machine.Change(t, d.options.Inventory, func() { d.machine.Gone = gpu.ErrDriverNotLoaded })
		after(10 * time.Minute)
		assert.Zero(t, d.listed)
		assert.Zero(t, d.now().Status.Changing)
		d.machine.Change(t, d.options.Inventory, func() { d.machine.Gone = nil })
		assert.Equal(t, []string{"n0", first}, d.advertised(t))
		assert.Equal(t, map[gpu.PoolDevice]bool{wholeOfFirst: true}, d.leaving(t))
		after(time.Minute)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
		assert.Equal(t, 1, d.listed)
	})
}

// TestDrain_LayoutChanges_GPUInspectedFirst: a MIG device that came and went since the last inspection left the GPU in MIG mode.
func TestDrain_LayoutChanges_GPUInspectedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, onlyMIG)
		stop := d.runs(t)
		defer stop()
		d.machine.Set(func() {
			d.machine.GPUs = slices.Clone(d.machine.GPUs)
			d.machine.GPUs[0].MIG = &gpu.MIG{Mode: gpu.MIGMode{Enabled: true}, Profiles: d.machine.GPUs[0].MIG.Profiles}
		})
		d.entries = onlyWhole
		d.Reload()
		after(changeWait + taintTime)
		assert.False(t, d.now().Node.GPUs[0].MIG.Mode.Enabled, "it was not inspected since")
		after(3*drainInterval + pageInterval)
		assert.Equal(t, []string{"n0", first}, d.advertised(t))
		assert.True(t, d.now().Node.GPUs[0].MIG.Mode.Enabled)
	})
}

// TestDrain_LayoutChanges_SavedBeforeItTakesEffect: a process that exits in between has advertised nothing that the next one does not know.
func TestDrain_LayoutChanges_SavedBeforeItTakesEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		var advertised []bool // whether the new layout was in effect when it was saved
		d.saved.saving = func(saved Saved) {
			is, will := d.output.latest.Load().Layout[firstUUID], saved.GPUs[firstUUID]
			inEffect := len(is.MIG) > 0 || d.worker.state.rollout.current[firstUUID].Equal(will)
			advertised = append(advertised, inEffect)
		}
		after(time.Minute)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
		assert.Equal(t, []bool{false}, advertised)
	})
}

func TestDrain_ConfigurationTakenBack_ChangeEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		assert.NotEmpty(t, d.leaving(t))
		d.entries = onlyWhole
		d.Reload()
		after(time.Minute)
		assert.Equal(t, []string{"n0", first}, d.advertised(t))
		assert.Empty(t, d.leaving(t))
		assert.Zero(t, d.listed)
	})
}

// TestDrain_SaveFailsLate_SavedAgain: a restart must not find a change that was taken back.
func TestDrain_SaveFailsLate_SavedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		d.saved.late = errLater
		for range (taintTime + pageInterval) / drainInterval * 10 {
			if !d.saved.layout[firstUUID].Whole {
				break
			}
			after(drainInterval / 5)
		}
		require.NotEqual(t, gpu.Modes{Whole: true}, d.saved.layout[firstUUID])
		require.Equal(t, []string{"n0", first}, d.advertised(t))
		d.saved.late = nil
		d.entries = onlyWhole
		d.Reload()
		after(time.Minute)
		assert.Equal(t, gpu.Modes{Whole: true}, d.saved.layout[firstUUID])
	})
}

// TestDrain_DevicesOnlyJoin_AtOnce: no device leaves, and counters keep the joining devices from overlapping the devices in use.
func TestDrain_DevicesOnlyJoin_AtOnce(t *testing.T) {
	t.Parallel()
	d := opened(t, onlyBig, holds(ownPool, big, "3g.40gb"))
	assert.Equal(t, []string{ownPool, big}, d.advertised(t))
	d.entries = both
	require.True(t, d.load(t))
	assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
	assert.Empty(t, d.leaving(t))
}

// TestDrain_Restart_GoesOn with a change from the advertised layout, and only in the process that leads.
func TestDrain_Restart_GoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		stop()
		d.restart(t)
		require.True(t, d.load(t))
		assert.Equal(t, []string{"n0", first}, d.advertised(t))
		assert.Equal(t, map[gpu.PoolDevice]bool{wholeOfFirst: true}, d.leaving(t))
		stop = fakes.Run(t, func(ctx context.Context) error { return d.Run(ctx, func() {}) })
		after(time.Minute)
		assert.Equal(t, []string{"n0", first}, d.advertised(t), "another process publishes")
		d.saved.layout = gpu.Layout{firstUUID: {MIG: []string{"1g.10gb", "3g.40gb"}}}
		d.Lead(true)
		after(retryFirst)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t), "which had come that far")
		stop()
	})
}

func TestStart_ConfigurationInvalid_LayoutStays(t *testing.T) {
	t.Parallel()
	d := opened(t, onlyMIG)
	d.saved.layout = gpu.Layout{firstUUID: {MIG: []string{"3g.40gb"}}}
	d.restart(t)
	d.read = errBad
	require.False(t, d.load(t))
	d.probe(t)
	assert.Equal(t, []string{ownPool, big}, d.advertised(t))
	assert.Equal(t, []string{"Warning NodeConfigInvalid Configure: GPUs are advertised as before this start: " + errBad.Error()}, d.events())
	assert.Equal(t, []string{"NodeConfigInvalid"}, d.now().Status.Problems)

	d.saved.err = errBad
	d.restart(t)
	assert.Equal(t, []string{"Warning LayoutStateUnreadable Configure: Layouts of GPUs without prepared claims may change at once: " + errBad.Error()}, d.events())
}

// TestStart_ConfigurationUnavailable_LayoutStays: it takes nothing back, however long that lasts, and keeps no claim waiting for as long.
func TestStart_ConfigurationUnavailable_LayoutStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, onlyMIG)
		d.saved.layout = gpu.Layout{firstUUID: {MIG: []string{"3g.40gb"}}}
		d.restart(t)
		d.read = errLater
		require.False(t, d.load(t))
		require.ErrorIs(t, d.now().Err, errLater, "which may pass at once")
		stop := d.runs(t)
		defer stop()
		after(time.Minute)
		assert.Equal(t, []string{ownPool, big}, d.advertised(t))
		assert.Equal(t, []string{"Warning NodeConfigUnavailable Configure: GPUs are advertised as before this start: " + errLater.Error()}, d.events())
		after(time.Hour)
		assert.Equal(t, []string{ownPool, big}, d.advertised(t))
		assert.Empty(t, d.events())
		d.read = nil
		after(time.Minute)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
		assert.Equal(t, []string{valid}, d.events())

		d.saved.layout = nil
		d.restart(t)
		d.read = errLater
		stopNew := d.runs(t)
		defer stopNew()
		after(time.Hour)
		require.ErrorIs(t, d.now().Err, errLater, "nothing was advertised before")
		assert.Equal(t, []string{"Warning NodeConfigUnavailable Configure: No change of the layout is published: " + errLater.Error()}, d.events())
	})
}

// TestReload_Invalid_LastValidStays: an error is reported once, and so is its correction.
func TestReload_Invalid_LastValidStays(t *testing.T) {
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
			assert.Equal(t, []string{"NodeConfigInvalid"}, d.now().Status.Problems)
			d.read = errLater
			after(time.Minute)
			assert.Equal(t, []string{"NodeConfigUnavailable"}, d.now().Status.Problems)
			assert.Len(t, d.events(), 1)
			assert.Equal(t, []string{ownPool, first, small6, big}, d.advertised(t))
			d.read = nil
			d.Reload()
			after(time.Minute)
			assert.Equal(t, []string{valid}, d.events())
			assert.Empty(t, d.now().Status.Problems)
		}
	})
}

// TestReload_Invalid_ReadWithBackOff while a GPU is draining, and not at all if the configuration is watched.
func TestReload_Invalid_ReadWithBackOff(t *testing.T) {
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
		"the text is refused, watched":    {true, errBad, onlyMIG, 1, 1},
		"it cannot be read now, watched":  {true, errLater, onlyMIG, 50, 70},
		"the text is refused, unwatched":  {false, errBad, onlyMIG, 50, 70},
		"all is well and nothing watches": {false, nil, onlyMIG, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, onlyWhole)
				d.watched, d.records = c.watched, append(d.records, holds("n0", first))
				d.restart(t)
				require.True(t, d.load(t))
				d.reads = 0
				var changes atomic.Int64
				d.Lead(true)
				stop := fakes.Run(t, func(ctx context.Context) error { return d.Run(ctx, func() { changes.Add(1) }) })
				defer stop()
				d.entries, d.read = c.entries, c.read
				d.Reload()
				after(10 * time.Minute)
				assert.GreaterOrEqual(t, d.reads, c.least)
				assert.LessOrEqual(t, d.reads, c.most)
				assert.LessOrEqual(t, int(changes.Load()), d.reads+1, "and counters were asked for")
				d.entries, d.read, d.records = onlyMIG, nil, nil
				d.Reload()
				after(time.Minute)
				assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t), "it is read when it is another one")
			})
		})
	}
}

// TestConfiguration_OtherGPUs_AppliedWithoutReading again.
func TestConfiguration_OtherGPUs_AppliedWithoutReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, `[{modes: [mig]}]`)
		d.watched = true
		d.restart(t)
		require.True(t, d.load(t))
		d.probe(t)
		stop := d.runs(t)
		defer stop()
		after(time.Minute)
		assert.Equal(t, []string{"NodeConfigInvalid"}, d.now().Status.Problems)
		d.machine.Change(t, d.options.Inventory, func() {
			d.machine.GPUs = slices.Clone(d.machine.GPUs)
			d.machine.GPUs[1].Product, d.machine.GPUs[1].MIG = d.machine.GPUs[0].Product, d.machine.GPUs[0].MIG
		})
		after(time.Minute)
		assert.Empty(t, d.now().Status.Problems)
		assert.Equal(t, 1, d.reads)
	})
}

func TestDrain_TaintsUnsupported_LayoutChangesWithoutThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, onlyWhole)
		d.untainted = true
		d.TaintsUnsupported()
		stop := d.runs(t)
		defer stop()
		d.entries = onlyMIG
		d.Reload()
		after(taintTime + 3*drainInterval + changeWait + pageInterval)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
	})
}

// TestCountersUnsupported_MIGDevicesInUse_NotAdvertisedWhole after the API server has stopped storing counters.
func TestCountersUnsupported_MIGDevicesInUse_NotAdvertisedWhole(t *testing.T) {
	t.Parallel()
	d := opened(t, both, holds(ownPool, small6, "1g.10gb"))
	d.CountersUnsupported()
	assert.Equal(t, []string{ownPool, small6}, d.advertised(t))
	d.records = append(d.records, holds(ownPool, first))
	d.renew()
	assert.Equal(t, []string{ownPool}, d.advertised(t), "what cannot be is not advertised")
	d.records = nil
	d.renew()
	assert.Equal(t, []string{ownPool, first}, d.advertised(t))
}
