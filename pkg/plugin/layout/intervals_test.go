package layout

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/fakes"
)

func TestIntervals_Configured_OfTimeSlicedGPUs(t *testing.T) {
	t.Parallel()
	both := func(a, b gpu.Interval) map[gpu.UUID]gpu.Interval {
		m := fakes.TwoGPUs()
		return map[gpu.UUID]gpu.Interval{m.GPUs[0].UUID: a, m.GPUs[1].UUID: b}
	}
	for name, c := range map[string]struct {
		entries string
		want    map[gpu.UUID]gpu.Interval
	}{
		"no configuration": {want: both("Default", "Default")},
		"one of two":       {"[{select: {indices: [1]}, modes: [timeslice], timeSlice: {replicas: 2, interval: Long}}]", both("Default", "Long")},
		"beside others":    {"[{modes: [whole, timeslice], timeSlice: {replicas: 2, interval: Short}}]", both("Short", "Short")},
		"none in it":       {"[{modes: [timeslice], timeSlice: {replicas: 2}}]", both("Default", "Default")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wanted, err := opened(t, c.entries).now().Intervals()
			require.NoError(t, err)
			assert.Equal(t, c.want, wanted)
		})
	}

	d := opened(t, "[{modes: [whole, timeslice], timeSlice: {replicas: 2, interval: Long}}]")
	d.CountersUnsupported()
	got, err := d.now().Intervals()
	require.NoError(t, err)
	assert.Equal(t, both("Default", "Default"), got, "an API server without counters has them advertised whole, and no shares exist")

	d = opened(t, "[{modes: [whole, mig, timeslice], timeSlice: {replicas: 2, interval: Long}}]")
	d.machine.Change(t, d.options.Inventory, func() { d.machine.GPUs[0].MIG.Mode = gpu.MIGMode{Enabled: true} })
	wanted, err := d.now().Intervals()
	require.NoError(t, err)
	assert.NotContains(t, wanted, d.machine.GPUs[0].UUID, "in MIG mode it has none")

	d.machine.Change(t, d.options.Inventory, func() { d.machine.Gone = gpu.ErrDriverNotLoaded })
	_, err = d.now().Intervals()
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)

	d = newFixture(t, "")
	_, err = d.now().Intervals()
	require.ErrorContains(t, err, "was not read yet", "before anything is known nothing is set or put back")
}
