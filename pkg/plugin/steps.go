package plugin

import (
	"context"
	"errors"
	"sync"

	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// Kubelet answers the kubelet's calls; Serve receives them from its sockets.
func (p *Plugin) Kubelet() *driver.Handler { return p.serving.server.Handler }

// Serve serves the kubelet until the context ends.
func (p *Plugin) Serve(ctx context.Context) error { return p.serving.server.Run(ctx) }

// Layout decides as which devices the GPUs are advertised.
func (p *Plugin) Layout() *Layout { return p.layout.Layout }

// Maintenance follows the node's own Node while Run runs.
func (p *Plugin) Maintenance() *Maintenance { return p.node.maintenance }

// Statuses writes the statuses of claims while Run runs.
func (p *Plugin) Statuses() *kube.Statuses { return p.statuses }

// Advertise makes the layout follow the node's configuration, the inventory and the API server, and publishes each change, until the
// context ends.
func (p *Plugin) Advertise(ctx context.Context) error {
	published := make(chan error, 1)
	go func() {
		defer close(published) // also if Run does not return
		published <- p.layout.Publisher.Run(ctx)
	}()
	var probing sync.WaitGroup
	probing.Go(func() { p.layout.probeAgain(ctx) })
	err := p.layout.Controller.Run(ctx, p.leader.renew)
	probing.Wait()
	return errors.Join(err, <-published)
}

// Close closes a plugin in place of Run. Statuses that were not written are dropped.
func (p *Plugin) Close() error {
	p.Machine.Inventory.Close()
	return closeUnused(p.statuses, p.Machine)
}

// closeUnused closes everything that Build has opened.
func closeUnused(statuses *kube.Statuses, m *Machine) error {
	ended, end := context.WithCancel(context.Background())
	end()
	return errors.Join(statuses.Run(ended), m.Close())
}
