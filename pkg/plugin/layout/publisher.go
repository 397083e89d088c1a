package layout

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// TaintSource is a reason to keep new claims from devices by taints. The taints of a device are in the order of the sources.
type TaintSource int

// The sources.
const (
	// Cleanup: a cleanup after an earlier claim is pending on a GPU.
	Cleanup TaintSource = iota
	// Drained: the layout of a GPU changes. It is the Publisher's own.
	Drained
	// Conflict: another component allocates the GPUs.
	Conflict
	// Service: a service of the node without which devices cannot be used does not answer.
	Service
	// Busy: another program uses hardware of a GPU that claims reserve.
	Busy
	// Health: a GPU has a finding.
	Health
	// Failed: devices of a type of a GPU cannot be used until they are restored.
	Failed

	sources
)

// ResourceSlices writes the node's ResourceSlices; pkg/plugin/kube implements it.
type ResourceSlices interface {
	Publish(resources resourceslice.DriverResources)
}

// Publisher publishes the layout, and keeps the devices that it has published last.
type Publisher struct {
	layout       func() *Snapshot
	options      publish.Options
	slices       ResourceSlices
	taints       taints
	news         chan struct{} // wakes Run
	publications publications
	last         atomic.Pointer[resourceslice.DriverResources]
}

// publications is the state of a Publisher's publications.
type publications struct {
	mu    sync.Mutex // held while publishing, so that the newest comes last
	began bool       // something was published
	// catalog describes the devices of a layout.
	catalog *publish.Catalog
	of      *Snapshot
}

// describe returns the devices of a layout, which are described once. The caller holds mu.
func (p *publications) describe(options publish.Options, s *Snapshot) *publish.Catalog {
	if p.of != s {
		options.Layout = s.Layout
		p.catalog, p.of = publish.NewCatalog(options, s.Node), s
	}
	return p.catalog
}

// taints are the rules of the sources.
type taints struct {
	mu    sync.Mutex
	rules [sources][]publish.TaintRule
	// withheld are the types of which it is not known whether a source taints them.
	withheld []gpu.DeviceType
	// dropped: the API server stores no taints.
	dropped bool
}

// NewPublisher publishes the layout of a Controller at once, so that no write of ResourceSlices empties the node. While the layout is not
// known, nothing is published, nor before the first inspection of the GPUs, which a release for a reset delays.
func NewPublisher(c *Controller, options publish.Options, slices ResourceSlices) *Publisher {
	p := &Publisher{layout: c.output.latest.Load, options: options, slices: slices, news: make(chan struct{}, 1)}
	p.Publish()
	return p
}

// Run publishes after each Renew, until the context ends.
func (p *Publisher) Run(ctx context.Context) error {
	for {
		select {
		case <-p.news:
			p.Publish()
		case <-ctx.Done():
			return nil
		}
	}
}

// SetTaints has Run publish these rules of a source in the place of its earlier ones. It does not block.
func (p *Publisher) SetTaints(source TaintSource, rules []publish.TaintRule) {
	p.taints.mu.Lock()
	p.taints.rules[source] = rules
	p.taints.mu.Unlock()
	p.Renew()
}

// Withhold makes Run publish no device of a type while it is not known whether a source taints it, or publish them again. Before the first
// publication, Run publishes nothing at all while the layout contains such devices: the previous process's devices may be allocated, and a
// scheduler that does not find them takes the GPU for free. It does not block.
func (p *Publisher) Withhold(t gpu.DeviceType, withheld bool) {
	p.taints.mu.Lock()
	types := slices.DeleteFunc(slices.Clone(p.taints.withheld), func(other gpu.DeviceType) bool { return other == t })
	if withheld {
		types = append(types, t)
	}
	changed := len(types) != len(p.taints.withheld)
	p.taints.withheld = types
	p.taints.mu.Unlock()
	if changed {
		p.Renew()
	}
}

// TaintsStored sets whether the API server stores taints, which is assumed before the first call. If taints are not stored, sources may
// withdraw the devices. It does not block.
func (p *Publisher) TaintsStored(stored bool) {
	p.taints.mu.Lock()
	changed := p.taints.dropped == stored
	p.taints.dropped = !stored
	p.taints.mu.Unlock()
	if changed {
		p.Renew()
	}
}

// in lists the rules that apply while a snapshot is the present one, the types that are withheld, and whether the API server drops taints.
func (t *taints) in(s *Snapshot) (rules []publish.TaintRule, withheld []gpu.DeviceType, dropped bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.rules
	all[Drained] = publish.DrainingTaints(s.Leaving)
	return slices.Concat(all[:]...), t.withheld, t.dropped
}

// Renew has Run publish again. It does not block.
func (p *Publisher) Renew() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// Publish publishes the layout with its taints now, as Run does when something changes.
func (p *Publisher) Publish() {
	p.publications.mu.Lock()
	defer p.publications.mu.Unlock()
	s := p.layout()
	if s.Err != nil || s.view.At.IsZero() {
		return
	}
	catalog := p.publications.describe(p.options, s)
	rules, withheld, dropped := p.taints.in(s)
	resources := catalog.Resources(rules, false, nil)
	p.last.Store(&resources) // prepared claims keep their devices, which are described as before
	withdrawn := publish.Withdrawn(rules, !dropped)
	if !withdrawn && !p.publications.began && s.hasAny(withheld) {
		return
	}
	p.publications.began = true
	switch {
	case withdrawn:
		p.slices.Publish(publish.Resources(p.options, nil))
	case dropped || len(withheld) > 0:
		p.slices.Publish(catalog.Resources(rules, dropped, withheld))
	default:
		p.slices.Publish(resources)
	}
}

// Describe returns the published attributes of a device, nil for one that is not published.
func (p *Publisher) Describe(pool, device string) map[string]resourceapi.DeviceAttribute {
	last := p.last.Load()
	if last == nil {
		return nil
	}
	for _, slice := range last.Pools[pool].Slices {
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
