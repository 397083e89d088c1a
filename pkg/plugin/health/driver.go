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
	d.reportNodes(before.Node, now.Node)
	known := map[int]bool{}
	if before.Node != nil {
		for _, fault := range before.Node.Faults {
			known[fault.Index] = true
		}
	}
	for _, fault := range now.Node.Faults {
		if !known[fault.Index] && !published(now.Node, fault.UUID) {
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

// published reports whether a GPU is published although it is lost. Its finding is reported instead of its fault.
func published(n *gpu.Node, id gpu.UUID) bool {
	return slices.ContainsFunc(n.GPUs, func(g gpu.GPU) bool { return g.UUID == id })
}

// reportNodes reports device nodes that are missing or exist again.
func (d DriverEvents) reportNodes(before, now *gpu.Node) {
	missing := map[gpu.UUID]string{}
	if before != nil {
		for i := range before.GPUs {
			missing[before.GPUs[i].UUID] = before.GPUs[i].MissingNode
		}
	}
	for i := range now.GPUs {
		g, was := &now.GPUs[i], missing[now.GPUs[i].UUID]
		switch g.MissingNode {
		case was: // also of a lost GPU, which has its last facts
		case "":
			d.Events.Normal(events.DeviceNodesRestored, events.ActionDiscover, fmt.Sprintf("GPU %d (%s) gets new claims again: %s exists", g.Index, g.UUID, was))
		default:
			d.Events.Warn(events.DeviceNodesMissing, events.ActionDiscover, fmt.Sprintf("GPU %d (%s) gets no new claims: device node %s is missing; create "+
				"it with nvidia-modprobe -u -c %d, or restart nvidia-persistenced", g.Index, g.UUID, g.MissingNode, g.Minor))
		}
	}
}
