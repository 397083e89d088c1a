package plugin

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/prepare"
	"github.com/prism-gpu/prism/pkg/timeslice"
)

// newKeeper builds what sets the intervals that the node's configuration says.
func newKeeper(ctx context.Context, m *Machine, l *nodeLayout, tx *prepare.Transaction, nodeEvents events.Recorder) *timeslice.Keeper {
	return timeslice.NewKeeper(timeslice.KeeperPorts{
		Tool: m.Tool, Notes: m.State.Intervals, Alone: tx.WithGPULock, Wanted: func() (map[gpu.UUID]gpu.Interval, error) { return l.Controller.Snapshot().Intervals() },
		Changed: func() <-chan struct{} { return m.Inventory.Current().Replaced() },
		Failed: func(id gpu.UUID, interval gpu.Interval, err error) {
			klog.FromContext(ctx).Error(err, "An interval is not set", "gpu", id, "interval", interval)
			nodeEvents.Warn(events.TimeSliceIntervalNotSet, events.ActionConfigure,
				fmt.Sprintf("The time slices of GPU %s are not as the node's configuration says, %s: %v", id, interval, err))
		},
	})
}
