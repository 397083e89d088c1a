package plugin

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/health"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// drainTime is the time for writing the last claim statuses when the process exits.
const drainTime = 3 * time.Second

// Serve builds everything and runs it, once the node may contain a GPU. It returns nil when the context ends.
func Serve(ctx context.Context, cfg *config.Plugin, a Adapters, clock inventory.Clock) error {
	if err := AwaitGPU(ctx, cfg, a, clock); err != nil || ctx.Err() != nil {
		return err
	}
	p, err := Build(ctx, cfg, a)
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

// Run serves until the context ends, which is no error, or something fails. It ends in order: first the lead, so that a newer version can
// publish; then the kubelet's calls, and then the driver that they need; last the claims' statuses. It cannot be called again.
func (p *Plugin) Run(signalled context.Context) error {
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
	for _, run := range p.parts() {
		start(&calls, ctx, run)
	}
	calls.Wait()
	p.Machine.Inventory.Close() // only now: calls that still ran were changing GPUs

	drain, stop := context.WithTimeout(writing, drainTime)
	defer stop()
	if err := p.statuses.Drain(drain); err != nil {
		klog.FromContext(ctx).Error(err, "Ending")
	}
	stopWriting()
	background.Wait()
	if err := p.Machine.Close(); err != nil {
		klog.FromContext(ctx).Error(err, "Ending")
	}
	if signalled.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// parts are the functions that run until the context ends. An error of one ends all.
func (p *Plugin) parts() []func(context.Context) error {
	l, inventory := p.layout, p.Machine.Inventory
	parts := []func(context.Context) error{
		p.leader.run,
		p.Advertise,
		func(ctx context.Context) error { return l.config.Watch(ctx, l.Controller.Reload) },
		l.Conflicts.Run,
		health.DriverEvents{Inventory: inventory, Events: l.events}.Run,
		p.serving.http.Run,
		inventory.Run,
		p.Machine.Health.Run,
		p.Serve,
		p.Machine.KeepPrograms,
		func(ctx context.Context) error { return p.Machine.serveHook(ctx, p.refused) },
		p.former.run,
		p.serving.failure,
	}
	parts = append(parts, p.node.parts()...)
	for _, service := range extension.All[extension.Service](p.Machine.Extensions) {
		parts = append(parts, service.Run)
	}
	return parts
}
