package driver

import (
	"context"
	"sync"
	"sync/atomic"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/publish"
)

// Publisher tells the slices what the inventory sees, and remembers what it told.
type Publisher struct {
	offering *Offering
	options  publish.Options
	slices   interface {
		Publish(resources resourceslice.DriverResources)
	}
	mu   sync.Mutex // held while publishing, so that the newest comes last
	told atomic.Pointer[resourceslice.DriverResources]
	// owed keep devices from new claims; news wakes Run.
	owed     atomic.Pointer[[]gpu.PendingCleanup]
	conflict atomic.Pointer[conflicting]
	news     chan struct{}
}

// conflicting is what else hands out the GPUs, and whether taints keep new claims away meanwhile. Where they do not, no device is
// published.
type conflicting struct {
	with   publish.Conflict
	taints bool
}

// NewPublisher publishes what is on offer at present at once, so that a controller that starts later never takes the node for
// empty. As long as that is not known nothing is published.
func NewPublisher(offering *Offering, options publish.Options, slices interface {
	Publish(resources resourceslice.DriverResources)
},
) *Publisher {
	p := &Publisher{offering: offering, options: options, slices: slices, news: make(chan struct{}, 1)}
	p.Publish()
	return p
}

// Run publishes every change until the context ends.
func (p *Publisher) Run(ctx context.Context) error {
	for {
		view := p.offering.ports.Inventory.Current()
		p.Publish()
		select {
		case <-view.Replaced():
		case <-p.news:
		case <-ctx.Done():
			return nil
		}
	}
}

// Owe keeps new claims away from what these debts block, and from nothing else, from now on. It does not block.
func (p *Publisher) Owe(debts []gpu.PendingCleanup) {
	p.owed.Store(&debts)
	p.Renew()
}

// Conflict keeps new claims away from all devices as long as something else hands out the GPUs; empty: nothing does. All devices are
// tainted where the API server keeps taints, and withdrawn elsewhere. It does not block.
func (p *Publisher) Conflict(with publish.Conflict, taints bool) {
	p.conflict.Store(&conflicting{with: with, taints: taints})
	p.Renew()
}

// Untaint is told that the API server has left taints out: during a conflict the devices are withdrawn. The next conflict begins with
// what is known then. It does not block.
func (p *Publisher) Untaint() {
	now := p.conflict.Load()
	if now != nil && now.with != "" && now.taints && p.conflict.CompareAndSwap(now, &conflicting{with: now.with}) {
		p.Renew()
	}
}

// Renew makes Run look again at what is on offer. It does not block.
func (p *Publisher) Renew() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// Publish publishes what is on offer now, as Run does when something changes.
func (p *Publisher) Publish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	present, err := p.offering.Present()
	if err != nil {
		return
	}
	options := p.options
	options.Layout, options.Leaving = present.Layout, present.Leaving
	conflict := p.conflict.Load()
	if conflict == nil {
		conflict = &conflicting{}
	}
	options.Conflict = conflict.with
	if owed := p.owed.Load(); owed != nil {
		options.Owed = *owed
	}
	resources := publish.Resources(options, present.Node)
	p.told.Store(&resources) // prepared claims go on, and have their devices described
	if conflict.with != "" && !conflict.taints {
		p.slices.Publish(publish.Resources(p.options, nil))
		return
	}
	p.slices.Publish(resources)
}

// Describe returns the published attributes of a device, nil for one that is not published.
func (p *Publisher) Describe(pool, device string) map[string]resourceapi.DeviceAttribute {
	told := p.told.Load()
	if told == nil {
		return nil
	}
	for _, slice := range told.Pools[pool].Slices {
		for i := range slice.Devices {
			if slice.Devices[i].Name != device {
				continue
			}
			attributes := make(map[string]resourceapi.DeviceAttribute, len(slice.Devices[i].Attributes))
			for name, value := range slice.Devices[i].Attributes {
				attributes[string(name)] = value
			}
			return attributes
		}
	}
	return nil
}
