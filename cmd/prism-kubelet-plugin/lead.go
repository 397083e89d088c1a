package main

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/driver"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/reconcile"
)

// reconcile builds what looks for things that nobody owns. It reads claims with the client that no claim waits for.
func (p *program) reconcile(clients connections, metrics *driver.Metrics) *reconcile.Reconciler {
	return reconcile.New(reconcile.Ports{
		Node:   driver.Keeping{Transaction: p.tx, Config: p.cfg},
		Claims: driver.ClaimLookup{Claims: kube.Claims{Client: clients.background}},
		Pods:   driver.PodResources{Socket: p.cfg.Paths.KubeletPodResources, CDIKind: cdi.Kind(p.cfg.DriverName)},
		Report: driver.OrphanReport{Events: p.events, Metrics: metrics},
	})
}

// lead does what only one process per node may: publish, settle what other processes left, remove what nobody owns, and set what the
// node's configuration says of GPUs.
func (p *program) lead(ctx context.Context) error {
	release, err := p.machine.State.Locks.Lead(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("becoming the node's publisher: %w", err)
	}
	defer release()
	klog.FromContext(ctx).V(2).Info("Leading on this node")
	p.offering.Lead(true)
	defer p.offering.Lead(false)
	p.publisher.Publish() // what the process before this one had come to
	var reconciling sync.WaitGroup
	defer reconciling.Wait()
	reconciling.Go(func() { p.reconciler.Run(ctx) })
	reconciling.Go(func() { p.keeper.Run(ctx) })
	return p.slices.Run(ctx)
}
