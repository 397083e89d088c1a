package main

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/timeslice"
)

// keep builds what sets the intervals that the node's configuration says.
func (p *program) keep(ctx context.Context) *timeslice.Keeper {
	return timeslice.NewKeeper(timeslice.KeeperPorts{
		Tool: p.machine.Tool, Notes: p.machine.State.Intervals, Alone: p.tx.Alone, Wanted: p.offering.Intervals,
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
