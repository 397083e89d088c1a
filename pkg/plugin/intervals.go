package plugin

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
)

// newIntervals builds the reconciler that sets the intervals of the node's configuration.
func newIntervals(ctx context.Context, m *Machine, l *Layout, tx *prepare.Transaction, nodeEvents events.Recorder) *timeslice.Reconciler {
	return timeslice.NewReconciler(timeslice.ReconcilerOptions{
		Tool: m.Tool, Store: m.State.Intervals, WithGPULock: tx.WithGPULock, Wanted: l.Intervals,
		Changed: func() <-chan struct{} { return m.Inventory.Current().Replaced() },
		Failed: func(id gpu.UUID, interval gpu.Interval, err error) {
			klog.FromContext(ctx).Error(err, "An interval is not set", "gpu", id, "interval", interval)
			nodeEvents.Warn(events.TimeSliceIntervalNotSet, events.ActionConfigure,
				fmt.Sprintf("The time-slice interval of GPU %s is not %s, as the node's configuration says: %v", id, interval, err))
		},
	})
}
