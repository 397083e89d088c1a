package health

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// DriverEvents reports changes of the NVIDIA driver and its GPUs as Events of the Node.
type DriverEvents struct {
	Inventory *inventory.Inventory
	Events    events.Recorder
}

// Run reports every change until the context ends. At the start it reports nothing if the driver and all GPUs answer.
func (d DriverEvents) Run(ctx context.Context) error {
	var before inventory.View
	for view := d.Inventory.Current(); ; view = d.Inventory.Current() {
		d.report(&before, view)
		before = *view
		select {
		case <-view.Replaced():
		case <-ctx.Done():
			return nil
		}
	}
}

func (d DriverEvents) report(before, now *inventory.View) {
	switch {
	case now.Err != nil && (before.Err == nil || before.Err.Error() != now.Err.Error()):
		d.Events.Warn(events.NVIDIADriverUnavailable, events.ActionDiscover, "No GPU is advertised: "+now.Err.Error())
	case now.Err == nil && before.Err != nil:
		d.Events.Normal(events.NVIDIADriverAvailable, events.ActionDiscover,
			fmt.Sprintf("NVIDIA driver %s responds with %d GPUs", now.Node.Driver.Version, answering(now.Node)))
	}
	known := map[int]bool{}
	if before.Node != nil {
		for _, fault := range before.Node.Faults {
			known[fault.Index] = true
		}
	}
	for _, fault := range now.Node.Faults {
		if !known[fault.Index] && !advertised(now.Node, fault.UUID) {
			d.Events.Warn(events.GPUUnhealthy, events.ActionDiscover, fmt.Sprintf("GPU %d (%s) is not advertised: %v", fault.Index,
				cmp.Or(string(fault.UUID), "UUID unknown"), fault.Err))
		}
	}
}

// answering counts the GPUs that answer.
func answering(n *gpu.Node) (count int) {
	for i := range n.GPUs {
		if !n.GPUs[i].Lost {
			count++
		}
	}
	return count
}

// advertised reports whether a GPU that does not answer is advertised all the same, with its last facts: a finding reports it.
func advertised(node *gpu.Node, id gpu.UUID) bool {
	return slices.ContainsFunc(node.GPUs, func(g gpu.GPU) bool { return g.UUID == id })
}
