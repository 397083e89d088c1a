package driver

import (
	"errors"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Intervals tells how long the time slices of every GPU that has any are to be: as the node's configuration says where the GPU is
// offered in turns, else as the driver has them by itself. GPUs in MIG mode have none. The error says why that is not known;
// gpu.ErrDriverNotLoaded where there is no driver.
func (o *Offering) Intervals() (map[gpu.UUID]gpu.Interval, error) {
	if err := o.ports.Inventory.Current().Err; errors.Is(err, gpu.ErrDriverNotLoaded) {
		return nil, err
	}
	node, layout, err := o.Now()
	if err != nil {
		return nil, err
	}
	wanted := map[gpu.UUID]gpu.Interval{}
	for i := range node.GPUs {
		g := &node.GPUs[i]
		if g.MIG != nil && g.MIG.Mode.Enabled {
			continue
		}
		wanted[g.UUID] = gpu.IntervalDefault
		if turns := layout.Of(g).TimeSlice; turns != nil && turns.Interval != "" {
			wanted[g.UUID] = turns.Interval
		}
	}
	return wanted, nil
}
