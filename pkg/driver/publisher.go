package driver

import (
	"context"
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
	told atomic.Pointer[resourceslice.DriverResources]
	// owed keep devices from new claims; news wakes Run.
	owed atomic.Pointer[[]gpu.Debt]
	news chan struct{}
}

// NewPublisher publishes what is on offer at present at once, so that a controller that starts later never takes the node for
// empty. As long as that is not known nothing is published.
func NewPublisher(offering *Offering, options publish.Options, slices interface {
	Publish(resources resourceslice.DriverResources)
},
) *Publisher {
	p := &Publisher{offering: offering, options: options, slices: slices, news: make(chan struct{}, 1)}
	p.publish()
	return p
}

// Run publishes every change until the context ends.
func (p *Publisher) Run(ctx context.Context) error {
	for {
		view := p.offering.ports.Inventory.Current()
		p.publish()
		select {
		case <-view.Replaced():
		case <-p.news:
		case <-ctx.Done():
			return nil
		}
	}
}

// Owe keeps new claims away from what these debts block, and from nothing else, from now on. It does not block.
func (p *Publisher) Owe(debts []gpu.Debt) {
	p.owed.Store(&debts)
	p.Renew()
}

// Renew makes Run look again at what is on offer. It does not block.
func (p *Publisher) Renew() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

func (p *Publisher) publish() {
	node, layout, err := p.offering.Now()
	if err != nil {
		return
	}
	options := p.options
	options.Layout = layout
	if owed := p.owed.Load(); owed != nil {
		options.Owed = *owed
	}
	resources := publish.Resources(options, node)
	p.told.Store(&resources)
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
