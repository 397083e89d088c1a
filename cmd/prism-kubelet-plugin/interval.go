package main

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/nvsmi"
	"github.com/prism-gpu/prism/pkg/timeslice"
)

// setting builds what sets GPUs as only the driver's tool can, that of the driver in use at the time. The program has one.
func setting(inv *inventory.Inventory) *nvsmi.Tool {
	return &nvsmi.Tool{Find: func() (nvsmi.Install, error) {
		view := inv.Current()
		if view.Root.Library == "" {
			return nvsmi.Install{}, view.Err
		}
		program, _ := view.Root.Tool("nvidia-smi")
		return nvsmi.Install{Program: program, Library: view.Root.Library, Root: view.Root.HostPath}, nil
	}}
}

// keep builds what sets the intervals that the node's configuration says.
func (p *program) keep(ctx context.Context, notes *timeslice.Notes) *timeslice.Keeper {
	return timeslice.NewKeeper(timeslice.KeeperPorts{
		Tool: p.tool, Notes: notes, Alone: p.tx.Alone, Wanted: p.offering.Intervals,
		Changed: func() <-chan struct{} { return p.inventory.Current().Replaced() },
		Failed: func(id gpu.UUID, interval gpu.Interval, err error) {
			klog.FromContext(ctx).Error(err, "An interval is not set", "gpu", id, "interval", interval)
			p.events.Warn("IntervalNotSet", "Configure",
				fmt.Sprintf("The time slices of GPU %s are not as the node's configuration says, %s: %v", id, interval, err))
		},
	})
}

// renew looks again at what the node offers: it may have changed.
func (p *program) renew() {
	p.publisher.Renew()
	p.keeper.Look()
}
