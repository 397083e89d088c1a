package driver

import (
	"context"
	"fmt"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/inventory"
)

// NodeEvents tells the operator of the node; kube.Events is the real one.
type NodeEvents interface {
	Warn(reason, action, note string)
	Normal(reason, action, note string)
}

// Notices tells as Events what changes with the NVIDIA driver and its GPUs.
type Notices struct {
	Inventory *inventory.Inventory
	Events    NodeEvents
}

// Run tells every change until the context ends. A node that is well at the start is no news.
func (n Notices) Run(ctx context.Context) error {
	var before inventory.View
	for view := n.Inventory.Current(); ; view = n.Inventory.Current() {
		n.tell(&before, view)
		before = *view
		select {
		case <-view.Replaced():
		case <-ctx.Done():
			return nil
		}
	}
}

func (n Notices) tell(before, now *inventory.View) {
	switch {
	case now.Err != nil && (before.Err == nil || before.Err.Error() != now.Err.Error()):
		n.Events.Warn(events.NVIDIADriverUnavailable, events.ActionDiscover, "No GPU is offered: "+now.Err.Error())
	case now.Err == nil && before.Err != nil:
		n.Events.Normal(events.NVIDIADriverAvailable, events.ActionDiscover,
			fmt.Sprintf("NVIDIA driver %s serves %d GPUs", now.Node.Driver.Version, len(now.Node.GPUs)))
	}
	known := map[int]bool{}
	if before.Node != nil {
		for _, fault := range before.Node.Faults {
			known[fault.Index] = true
		}
	}
	for _, fault := range now.Node.Faults {
		if !known[fault.Index] {
			n.Events.Warn(events.GPUUnhealthy, events.ActionDiscover, fmt.Sprintf("GPU %d (%s) is not offered: %v", fault.Index, fault.UUID, fault.Err))
		}
	}
}
