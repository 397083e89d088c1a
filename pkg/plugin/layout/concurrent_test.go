package layout

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestSnapshot_ConcurrentReaders_LayoutFitsNode: while the configuration and the GPUs of the node change, every reader gets a layout that
// belongs to the GPUs it gets, and these GPUs are at least as new as the inventory's GPUs were before. The race detector finds other
// errors.
func TestSnapshot_ConcurrentReaders_LayoutFitsNode(t *testing.T) {
	t.Parallel()
	const readers, reads = 4, 200
	d := opened(t, onlyMIG)
	stop := d.runs(t)
	defer stop()
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			for range reads {
				s := d.Snapshot()
				if s.Err != nil {
					assert.ErrorIs(t, s.Err, errNewGPU)
					continue
				}
				var on []gpu.UUID
				for i := range s.Node.GPUs {
					on = append(on, s.Node.GPUs[i].UUID)
				}
				assert.ElementsMatch(t, on, slices.Collect(maps.Keys(s.Layout)))
				_, err := s.Intervals()
				assert.NoError(t, err)
				assert.NotEmpty(t, s.Devices())
				assert.LessOrEqual(t, s.Status.Changing, 2)
				assert.False(t, s.Standby)
				assert.Empty(t, s.Status.Problems)
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); group.Wait() }()
	all := d.machine.GPUs
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		default:
		}
		guard.Lock()
		d.entries = []string{onlyWhole, onlyMIG, shared, onlyBig}[i%4]
		guard.Unlock()
		d.Reload()
		d.machine.Change(t, d.options.Inventory, func() { d.machine.GPUs = all[:1+i%2] })
		assert.Equal(t, i%2 == 0, d.Snapshot().Node.GPUs[1].Lost)
	}
}
