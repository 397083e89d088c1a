package driver

import (
	"errors"
	"slices"

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
		offer := layout.Of(g)
		inTurns := slices.ContainsFunc(offer.Devices(g), func(d gpu.Device) bool { return d.Type() == gpu.TypeTimeSlice })
		if inTurns && offer.TimeSlice.Interval != "" { // without counters another way of using the GPU may be the one on offer
			wanted[g.UUID] = offer.TimeSlice.Interval
		}
	}
	return wanted, nil
}
