package driver

import (
	"context"
	"sync/atomic"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/publish"
)

// Publisher tells the slices what the inventory sees, and remembers what it told.
type Publisher struct {
	inventory *inventory.Inventory
	options   publish.Options
	slices    interface {
		Publish(resources resourceslice.DriverResources)
	}
	told atomic.Pointer[resourceslice.DriverResources]
	// owed keep devices from new claims; news wakes Run.
	owed atomic.Pointer[[]gpu.Debt]
	news chan struct{}
}

// NewPublisher publishes the inventory's present view at once, so that a controller that starts later never takes the node
// for empty.
func NewPublisher(inv *inventory.Inventory, options publish.Options, slices interface {
	Publish(resources resourceslice.DriverResources)
},
) *Publisher {
	p := &Publisher{inventory: inv, options: options, slices: slices, news: make(chan struct{}, 1)}
	p.publish(inv.Current())
	return p
}

// Run publishes every change until the context ends.
func (p *Publisher) Run(ctx context.Context) error {
	for view := p.inventory.Current(); ; view = p.inventory.Current() {
		p.publish(view)
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
	select {
	case p.news <- struct{}{}:
	default:
	}
}

func (p *Publisher) publish(view *inventory.View) {
	options := p.options
	if owed := p.owed.Load(); owed != nil {
		options.Owed = *owed
	}
	resources := publish.Resources(options, view.Node)
	p.told.Store(&resources)
	p.slices.Publish(resources)
}

// Describe returns the published attributes of a device, nil for one that is not published.
func (p *Publisher) Describe(pool, device string) map[string]resourceapi.DeviceAttribute {
	for _, slice := range p.told.Load().Pools[pool].Slices {
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
