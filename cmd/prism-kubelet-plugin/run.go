package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/driver"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/prepare"
	"github.com/prism-gpu/prism/pkg/reconcile"
	"github.com/prism-gpu/prism/pkg/timeslice"
)

type claimObject = resourceapi.ResourceClaim

// drainTime is what the last claim statuses get to be written when the process ends.
const drainTime = 3 * time.Second

// program is everything that runs.
type program struct {
	cfg        *config.Plugin
	machine    *plugin.Machine
	tx         *prepare.Transaction
	inventory  *inventory.Inventory
	offering   *driver.Offering
	slices     *kube.Slices
	statuses   *kube.Statuses
	events     *kube.Events
	watching   func(context.Context) error
	conflicts  *driver.Conflicts
	publisher  *driver.Publisher
	server     *driver.Server
	reconciler *reconcile.Reconciler
	keeper     *timeslice.Keeper
	http       driver.HTTP
	damaged    atomic.Int64
	owed       []gpu.Debt
	found      atomic.Pointer[[]*checkpoint.Record]
	first      atomic.Pointer[firstConfig]
	// rootFollows: the driver's root is what the node's configuration says, not a flag.
	rootFollows bool
	warned      sync.Map // warnings about the node's configuration that were logged
	failed      chan error
}

// owe keeps claims away from what is owed; what is told before there is a publisher waits for it.
func (p *program) owe(debts []gpu.Debt) {
	if p.publisher == nil {
		p.owed = debts
		return
	}
	p.publisher.Owe(debts)
}

// setAside tells of a record that could not be read.
func (p *program) setAside(ctx context.Context, err error) {
	p.damaged.Add(1)
	klog.FromContext(ctx).Error(err, "A claim's record was set aside")
	p.events.Warn("RecordDamaged", "Recover", err.Error())
}

// disjoin offers no devices any more that only dropped counters would keep apart.
func (p *program) disjoin() {
	p.offering.Disjoin()
	p.publisher.Renew()
}

func (p *program) newSlices(ctx context.Context, clients connections) *kube.Slices {
	cfg, events := p.cfg, p.events
	logger := klog.FromContext(ctx)
	return kube.NewSlices(kube.SlicesOptions{
		Client: clients.background, DriverName: cfg.DriverName, NodeName: cfg.NodeName,
		OnDropped: func(d kube.DroppedFields) {
			logger.Info("The API server stored a ResourceSlice without some fields: turn the features on",
				"pool", d.Pool, "slice", d.Slice, "features", d.Features)
			if d.Counters() {
				p.disjoin()
			}
			if d.Taints() {
				p.offering.Untaint()
				p.publisher.Untaint()
			}
			events.Warn("FieldsDropped", "Publish", fmt.Sprintf("The API server leaves out parts of the ResourceSlices of pool %s: "+
				"turn on %s", d.Pool, strings.Join(d.Features, ", ")))
		},
		OnError: func(err error) { logger.Error(err, "ResourceSlices are not published yet") },
	})
}

// serve builds what the kubelet and people talk to.
func (p *program) serve(clients connections, reports driver.Reports) {
	p.failed = make(chan error, 1)
	metrics := driver.NewMetrics(version, driver.Readings{
		Devices: func() map[string]int {
			counts := map[string]int{}
			for _, d := range p.offering.Devices() {
				counts[string(d.Type())]++
			}
			if p.published().Monitor && len(p.inventory.Current().Node.GPUs) > 0 {
				counts[string(gpu.TypeMonitor)]++
			}
			return counts
		},
		Faults:        func() int { return p.inventory.Status().Faults },
		Claims:        p.tx.Counts,
		DriverLoaded:  func() bool { return p.inventory.Status().Usable() },
		SliceErrors:   func() int64 { return p.slices.Stats().Errors },
		DroppedFields: func() int64 { return p.slices.Stats().Dropped },
		Damaged:       func() int { return int(p.damaged.Load()) },
		Configuration: p.offering.Problems, Changing: p.offering.Changing, Intervals: p.keeper.Failing,
	})
	var describe driver.Describe
	if p.cfg.DeviceMetadata {
		describe = p.publisher.Describe
	}
	plugin := driver.New(p.tx, reports, metrics, describe, func(err error) {
		select {
		case p.failed <- err:
		default:
		}
	})
	p.server = &driver.Server{Plugin: plugin, Config: p.cfg, Client: clients.claims}
	p.reconciler = p.reconcile(clients, metrics)
	p.http = driver.HTTP{
		Endpoint: p.cfg.Serving.HTTPEndpoint, Metrics: metrics, Pprof: p.cfg.Serving.Pprof, Ready: p.server.Ready,
		Note: func() string {
			if err := p.inventory.Status().Err; err != nil {
				return "without devices: " + err.Error()
			}
			return ""
		},
	}
}

// run starts everything and ends in order: first the lead, so that a newer version can publish; then the kubelet's calls, and
// then the driver that they need; last the claims' statuses.
func (p *program) run(signalled context.Context) error {
	ctx, cancel := context.WithCancelCause(signalled)
	defer cancel(nil)
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriting()
	var calls, background sync.WaitGroup
	start := func(wg *sync.WaitGroup, ctx context.Context, what func(context.Context) error) {
		wg.Go(func() {
			if err := what(ctx); err != nil {
				cancel(err)
			}
		})
	}
	start(&background, writing, p.statuses.Run)
	start(&calls, ctx, p.lead)
	start(&calls, ctx, p.publisher.Run)
	start(&calls, ctx, func(ctx context.Context) error { return p.offering.Run(ctx, p.renew) })
	start(&calls, ctx, p.watching)
	start(&calls, ctx, p.conflicts.Run)
	start(&calls, ctx, driver.Notices{Inventory: p.inventory, Events: p.events}.Run)
	start(&calls, ctx, p.http.Run)
	start(&calls, ctx, p.inventory.Run)
	start(&calls, ctx, p.server.Run)
	start(&calls, ctx, p.machine.KeepPrograms)
	start(&calls, ctx, func(ctx context.Context) error {
		select {
		case err := <-p.failed:
			return err
		case <-ctx.Done():
			return nil
		}
	})
	calls.Wait()
	p.inventory.Close() // only now: calls that still ran were changing GPUs

	drain, stop := context.WithTimeout(writing, drainTime)
	defer stop()
	if err := p.statuses.Drain(drain); err != nil {
		klog.FromContext(ctx).Error(err, "Ending")
	}
	stopWriting()
	background.Wait()
	if err := p.machine.Close(); err != nil {
		klog.FromContext(ctx).Error(err, "Ending")
	}
	if signalled.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}
