package plugin

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/layout"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
)

// Core changes the node: it prepares claims and sets intervals, according to the advertised devices.
type Core struct {
	Machine *Machine
	Claims  *prepare.Transaction
	// Intervals sets the time-slice intervals that the node's configuration says.
	Intervals *timeslice.Reconciler
	// Damaged are the errors of records that could not be read at the start.
	Damaged []error

	layout *Layout
	found  []*checkpoint.Record // the records read at the start, nil if they could not be read
}

// coreReports are how a Core reports.
type coreReports struct {
	// events are about the node.
	events events.Recorder
	// retrying reports why a claim waits.
	retrying func(rc *resourceapi.ResourceClaim, cause error)
	// unhealthy returns the problems for which a GPU gets no new claims; nil: it is not checked.
	unhealthy func(id gpu.UUID) []prepare.Problem
	// userNamespace returns a pod of a claim with a user namespace, which runc starts; "" without one. Nil for a machine without an API.
	userNamespace func(ctx context.Context, rc *resourceapi.ResourceClaim) (string, error)
}

// newCore builds a Core on a machine that has opened its files. Claims can be unprepared from then on, and prepared after begin.
func newCore(ctx context.Context, m *Machine, l *Layout, reports coreReports) (*Core, error) {
	c := &Core{Machine: m, layout: l}
	options := m.Options()
	options.Retrying, options.Unhealthy = reports.retrying, reports.unhealthy
	options.Loaded = func(records []*checkpoint.Record) { c.found = append([]*checkpoint.Record{}, records...) }
	l.Bind(&options)
	ports := m.Ports(ctx, l, reports.events)
	if reports.userNamespace != nil {
		ports.Planner = startable{ports.Planner, SpecBuilder(m.adapters.Host, m.Inventory, nil).DriverNode, reports.userNamespace}
	}
	var err error
	if c.Claims, c.Damaged, err = m.adapters.Transaction(ports, options); err != nil {
		return nil, err
	}
	for _, err := range c.Damaged {
		if m.damaged != nil {
			m.damaged(err)
		}
	}
	c.Intervals = newIntervals(ctx, m, l, c.Claims, reports.events)
	for _, e := range extension.All[extension.Attacher](m.Extensions) {
		e.Attach(ctx, extension.Attachment{
			Advertised: l.Now, SetAvailability: l.setAvailability, SetBusy: l.setBusy, SetFailed: l.failed.set, Events: reports.events,
			Records: c.Claims.Records, WithGPULock: c.Claims.WithGPULock,
		})
	}
	return c, nil
}

// begin inspects the driver once and begins to advertise. A driver that does not respond is an error only if the operator has configured
// that, and no claim would suffer.
func (c *Core) begin(ctx context.Context, read layout.AtStart) error {
	fail := c.Machine.cfg.Driver.FailOnInitError
	err := c.Machine.Inventory.Refresh(ctx)
	if claims, _ := c.Claims.Counts(); err != nil && fail != nil && *fail && claims == 0 {
		return fmt.Errorf("exiting because failOnInitError is true: %w", err)
	}
	if err != nil {
		klog.FromContext(ctx).Info("No usable NVIDIA driver yet: serving without devices and trying again", "reason", err.Error())
	}
	read.Records = c.found
	var begins []func(context.Context)
	for _, e := range extension.All[extension.Attacher](c.Machine.Extensions) {
		begins = append(begins, e.Begin)
	}
	c.layout.Begin(ctx, read, begins...)
	return nil
}
