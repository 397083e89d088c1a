package plugin

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
)

// newIntervals builds the reconciler that sets the intervals of the node's configuration.
func newIntervals(ctx context.Context, m *Machine, l *Layout, tx *prepare.Transaction, nodeEvents events.Recorder) *timeslice.Reconciler {
	return timeslice.NewReconciler(timeslice.ReconcilerOptions{
		Tool: m.Tool, Store: m.State.Intervals, WithGPULock: tx.WithGPULock, Wanted: inSession(m.Inventory, l.Intervals),
		Changed: func() <-chan struct{} { return m.Inventory.Current().Replaced() },
		Failed: func(id gpu.UUID, interval gpu.Interval, err error) {
			klog.FromContext(ctx).Error(err, "An interval is not set", "gpu", id, "interval", interval)
			nodeEvents.Warn(events.TimeSliceIntervalNotSet, events.ActionConfigure,
				fmt.Sprintf("The time-slice interval of GPU %s is not %s, as the node's configuration says: %v", id, interval, err))
		},
	})
}

// inSession returns the wanted intervals while a session of the driver is open. Without one, as while GPUs are released for a reset, the
// driver may lose all intervals: they are set again afterwards.
func inSession(inv *inventory.Inventory, wanted func() (map[gpu.UUID]gpu.Interval, error)) func() (map[gpu.UUID]gpu.Interval, error) {
	return func() (map[gpu.UUID]gpu.Interval, error) {
		if _, err := inv.ComputeModes(); err != nil {
			return nil, fmt.Errorf("%w: %w", gpu.ErrDriverNotLoaded, err)
		}
		return wanted()
	}
}
