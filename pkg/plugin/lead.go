package plugin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/plugin/reconcile"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
)

// leader does the work that only one process per node may do: it publishes, recovers claims of other processes, removes leaked resources,
// and applies the GPU settings of the node's configuration.
type leader struct {
	locks Locks
	// othersEnded is closed when no process of an earlier driver name runs any more.
	othersEnded <-chan struct{}
	layout      *nodeLayout
	intervals   *timeslice.Reconciler
	renewed     func()
	reconciler  *reconcile.Reconciler
	// background works until the context ends.
	background []func(ctx context.Context)
	// registered is closed once the kubelet has registered this plugin.
	registered <-chan struct{}
}

// registrationLimit is the longest time that devices wait unpublished for the kubelet. It registers a plugin within about a second after
// the socket exists. A kubelet that takes longer is not running, so it starts no pods whose claims would be refused.
const registrationLimit = 5 * time.Second

// run leads as soon as no other process of the node does, until the context ends.
func (l *leader) run(ctx context.Context) error {
	release, err := l.locks.Lead(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("becoming the node's publisher: %w", err)
	}
	defer release()
	select {
	case <-l.othersEnded: // devices of claims of an earlier driver name would seem leaked, and free
	case <-ctx.Done():
		return nil
	}
	klog.FromContext(ctx).V(2).Info("Leading on this node")
	l.layout.health.Lead(ctx) // first, so that no sick GPU is published without its taint
	l.layout.Lead()
	defer l.layout.Controller.Lead(false)
	var reconciling sync.WaitGroup
	defer reconciling.Wait()
	reconciling.Go(func() { l.reconciler.Run(ctx) })
	reconciling.Go(func() { l.intervals.Run(ctx) })
	for _, work := range l.background {
		reconciling.Go(func() { work(ctx) })
	}
	l.awaitKubelet(ctx)
	return l.layout.publish(ctx)
}

// awaitKubelet waits until the kubelet sends its calls to this plugin, or registrationLimit has passed. A pod that waits for the first
// devices of the node is scheduled as soon as they are published; its claim would be refused, and not be tried again for a minute.
func (l *leader) awaitKubelet(ctx context.Context) {
	select {
	case <-l.registered:
	case <-time.After(registrationLimit):
		klog.FromContext(ctx).Info("Devices are published though the kubelet has not registered the plugin", "waited", registrationLimit)
	case <-ctx.Done():
	}
}

// renew makes the publisher, the intervals and the extensions read the advertised devices again: they may have changed.
func (l *leader) renew() {
	l.layout.Publisher.Renew()
	l.intervals.Trigger()
	l.renewed()
}
