package driver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestIntervals(t *testing.T) {
	t.Parallel()
	both := func(a, b gpu.Interval) map[gpu.UUID]gpu.Interval {
		m := twoGPUs()
		return map[gpu.UUID]gpu.Interval{m.gpus[0].UUID: a, m.gpus[1].UUID: b}
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
			wanted, err := opened(t, c.entries).Intervals()
			require.NoError(t, err)
			assert.Equal(t, c.want, wanted)
		})
	}

	d := opened(t, "[{modes: [whole, timeslice], timeSlice: {replicas: 2, interval: Long}}]")
	d.Disjoin()
	got, err := d.Intervals()
	require.NoError(t, err)
	assert.Equal(t, both("Default", "Default"), got, "an API server without counters has them offered whole, and nobody takes turns")

	d = opened(t, "[{modes: [whole, mig, timeslice], timeSlice: {replicas: 2, interval: Long}}]")
	d.machine.change(t, d.ports.Inventory, func() { d.machine.gpus[0].MIG.Mode = gpu.MIGMode{Enabled: true} })
	wanted, err := d.Intervals()
	require.NoError(t, err)
	assert.NotContains(t, wanted, d.machine.gpus[0].UUID, "in MIG mode it has none")

	d.machine.change(t, d.ports.Inventory, func() { d.machine.gone = gpu.ErrDriverNotLoaded })
	_, err = d.Intervals()
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)

	d = newDesk(t, "")
	_, err = d.Intervals()
	require.ErrorContains(t, err, "was not read yet", "before anything is known nothing is set or put back")
}
