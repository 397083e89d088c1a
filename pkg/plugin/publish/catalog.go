package publish

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Catalog describes the devices of a node, and can say which of them are published, with which taints. A node has some 200 devices, which change
// rarely, so a taint costs no new description of them. It does not change.
type Catalog struct {
	options Options
	pools   []catalogPool
}

// catalogPool is a pool in the catalog.
type catalogPool struct {
	name string
	// counters are in a ResourceSlice before the devices; nil: no devices exclude each other.
	counters []resourceapi.CounterSet
	devices  []catalogDevice
}

// catalogDevice is a device with its description, which has no taints.
type catalogDevice struct {
	device      gpu.Device
	description resourceapi.Device
}

// NewCatalog describes the devices of a node; nil means a node without GPUs. Taints, TaintsDropped and Withheld of the options are not read.
func NewCatalog(opts Options, node *gpu.Node) *Catalog {
	if node == nil {
		node = &gpu.Node{}
	}
	c := &Catalog{options: opts}
	var whole []gpu.Device
	for _, d := range node.Devices() {
		if !opts.Layout.Of(d.Parent()).Partitioned() {
			whole = append(whole, d)
		}
	}
	c.pools = append(c.pools, catalogPool{name: opts.NodeName, devices: opts.describe(whole, node, nil)})
	for i := range node.GPUs {
		g := &node.GPUs[i]
		if modes := opts.Layout.Of(g); modes.Partitioned() {
			c.pools = append(c.pools, opts.partitioned(g, node))
		}
	}
	if opts.Additional != (gpu.Additional{}) {
		c.pools = append(c.pools, catalogPool{name: gpu.Monitor{}.Pool(opts.NodeName), devices: opts.describe(opts.Additional.Devices(node.GPUs), node, nil)})
	}
	return c
}

// Resources returns the devices of the catalog with taints by these rules; dropped: the API server stores none. Devices of the withheld types
// are left out. The result shares parts with other results: it must not be changed.
func (c *Catalog) Resources(rules []TaintRule, dropped bool, withheld []gpu.DeviceType) resourceslice.DriverResources {
	opts := c.options
	opts.Taints, opts.TaintsDropped, opts.Withheld = rules, dropped, withheld
	pools := make(map[string]resourceslice.Pool, len(c.pools))
	for i := range c.pools {
		pool := &c.pools[i]
		devices := make([]resourceapi.Device, 0, len(pool.devices))
		for n := range pool.devices {
			d := &pool.devices[n]
			if opts.withdrawn(d.device) {
				continue
			}
			published := d.description
			published.Taints = opts.taints(d.device)
			devices = append(devices, published)
		}
		parts := chunk(devices)
		if pool.counters != nil {
			parts = append([]resourceslice.Slice{{SharedCounters: pool.counters}}, parts...)
		}
		pools[pool.name] = resourceslice.Pool{Slices: parts}
	}
	return resourceslice.DriverResources{Pools: pools}
}

// describe describes devices of the node in the order in which the scheduler allocates them. Set are the counters of their GPU; nil: they take
// none.
func (o Options) describe(devices []gpu.Device, node *gpu.Node, set *resourceapi.CounterSet) []catalogDevice {
	members := o.members(devices)
	described := make([]catalogDevice, len(members))
	for i, m := range members {
		described[i] = catalogDevice{m.device, o.device(m, node)}
		if set == nil {
			continue
		}
		if takes := m.family.Counters(m.device, set.Counters); takes != nil {
			described[i].description.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: set.Name, Counters: takes}}
		}
	}
	return described
}
