package layout

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestSnapshot_ConfiguredMemory_OfGPUWithout: claims are planned with the memory that the configuration has for a GPU without, it changes without
// a release, and it stays over a restart, on a reduced layout and on later views of the inventory.
func TestSnapshot_ConfiguredMemory_OfGPUWithout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const entries = `[{modes: [whole, timeslice], memory: 64Gi, timeSlice: {replicas: 2}}]`
		d := newFixture(t, entries)
		d.uncounted = true // so that the layout is reduced
		for i := range d.machine.GPUs {
			d.machine.GPUs[i].Capacity = gpu.Capacity{MemoryBytes: 119 << 30}
		}
		d.machine.GPUs[0].UnifiedMemory = true
		d.restart(t)
		stop := d.runs(t)
		after(2 * retryFirst)
		requireMemory(t, d.now(), 64)
		d.entries = strings.Replace(entries, "64Gi", "32Gi", 1)
		d.Reload()
		after(changeWait)
		requireMemory(t, d.now(), 32)
		assert.Empty(t, d.leaving(t), "no device waits for its release")
		after(drainInterval + roundInterval)
		stop()

		d.read = errLater
		d.restart(t)
		stop = d.runs(t)
		defer stop()
		after(retryBudget * retryMax)
		requireMemory(t, d.now(), 32)
	})
}

// requireMemory checks the memory of the first GPU, in GiB; the memory of the other one differs.
func requireMemory(t *testing.T, s *Snapshot, gibibytes uint64) {
	t.Helper()
	require.NoError(t, s.Err)
	want := []uint64{gibibytes << 30, 119 << 30}
	require.Len(t, s.Node.GPUs, len(want))
	for i := range want {
		assert.Equal(t, want[i], s.Node.GPUs[i].Capacity.MemoryBytes)
	}
	require.NotEmpty(t, s.Devices())
	assert.Equal(t, want[0], s.Devices()[0].Capacity().MemoryBytes)
	later := *s.view
	assert.Equal(t, s.Node, s.on(&later).Node)
}
