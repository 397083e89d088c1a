package plugin

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/layout"
	"github.com/prism-gpu/prism/pkg/mps"
	"github.com/prism-gpu/prism/pkg/prepare"
	"github.com/prism-gpu/prism/pkg/timeslice"
)

// Core is what a plugin does to its node: it prepares claims and sets intervals, by what is advertised. What serves the kubelet, asks the API
// server and runs in the background is added by Build, or by tests, which kill and measure the same Core.
type Core struct {
	Machine *Machine
	Claims  *prepare.Transaction
	// Intervals sets the time-slice intervals that the node's configuration says.
	Intervals *timeslice.Reconciler
	// MPS keeps the control daemons of shared devices running.
	MPS *mps.Reconciler
	// Damaged are the errors of records that could not be read at the start.
	Damaged []error

	advertiser Advertiser
	found      []*checkpoint.Record // what the start has read, nil where it could not
}

// Advertiser is what advertises the GPUs; *Layout is the real one.
type Advertiser interface {
	Advertised
	// Bind has a transaction report to it, and ask it, before claims are prepared.
	Bind(settings *prepare.Settings)
	// Begin begins to advertise by what was read at the start.
	Begin(ctx context.Context, read layout.AtStart)
	// Intervals returns the interval of every GPU that has one; the error says why that is not known.
	Intervals() (map[gpu.UUID]gpu.Interval, error)
}

// Reports are how a Core reports.
type Reports struct {
	// Events are about the node.
	Events events.Recorder
	// Retrying reports why a claim waits; nil for nothing.
	Retrying func(rc *resourceapi.ResourceClaim, cause error)
}

// NewCore builds what prepares claims on a machine that has opened its files. Claims can be unprepared from then on, and prepared after Begin.
func NewCore(ctx context.Context, m *Machine, advertiser Advertiser, reports Reports) (*Core, error) {
	c := &Core{Machine: m, advertiser: advertiser}
	settings := m.Settings()
	settings.Retrying = reports.Retrying
	settings.Loaded = func(records []*checkpoint.Record) { c.found = append([]*checkpoint.Record{}, records...) }
	advertiser.Bind(&settings)
	var err error
	if c.Claims, c.Damaged, err = m.adapters.Transaction(m.Ports(advertiser, reports.Events), settings); err != nil {
		return nil, err
	}
	for _, err := range c.Damaged {
		if m.damaged != nil {
			m.damaged(err)
		}
	}
	c.Intervals = newIntervals(ctx, m, advertiser, c.Claims, reports.Events)
	c.MPS = m.mps.reconciler(ctx, c.Claims, reports.Events)
	return c, nil
}

// Begin inspects the driver once and begins to advertise. A driver that does not respond is an error only where the operator has configured
// that, and no claim would suffer.
func (c *Core) Begin(ctx context.Context, read layout.AtStart) error {
	fail := c.Machine.cfg.Driver.FailOnInitError
	err := c.Machine.Inventory.Refresh(ctx)
	if claims, _ := c.Claims.Counts(); err != nil && fail != nil && *fail && claims == 0 {
		return fmt.Errorf("exiting because failOnInitError is true: %w", err)
	}
	if err != nil {
		klog.FromContext(ctx).Info("No usable NVIDIA driver yet: serving without devices and trying again", "reason", err.Error())
	}
	read.Records = c.found
	c.advertiser.Begin(ctx, read)
	return nil
}
