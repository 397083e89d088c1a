package driver

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestOffering_ConcurrentReaders_LayoutFitsNode: while the configuration and the GPUs of the node change, every reader gets the layout of the
// very GPUs that it gets. The race detector sees the rest.
func TestOffering_ConcurrentReaders_LayoutFitsNode(t *testing.T) {
	t.Parallel()
	const readers, reads = 4, 100
	d := opened(t, onlySlices)
	d.Lead(true)
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			for range reads {
				present, err := d.Present()
				assert.NoError(t, err)
				var on []gpu.UUID
				for i := range present.Node.GPUs {
					on = append(on, present.Node.GPUs[i].UUID)
				}
				assert.ElementsMatch(t, on, slices.Collect(maps.Keys(present.Layout)))
				_, err = d.Intervals()
				assert.NoError(t, err)
				assert.NotEmpty(t, d.Devices())
				assert.LessOrEqual(t, d.Changing(), 2)
				assert.False(t, d.Standby())
				assert.Empty(t, d.Problems())
				_ = d.Flags()
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); group.Wait() }()
	gpus := slices.Clone(d.machine.gpus)
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		default:
		}
		fakes.Lock()
		d.entries = []string{onlyWhole, onlySlices, turns, onlyBig}[i%4]
		fakes.Unlock()
		assert.True(t, d.Load(t.Context()))
		d.Reload()
		d.machine.change(t, d.ports.Inventory, func() { d.machine.gpus = gpus[:1+i%2] })
	}
}
