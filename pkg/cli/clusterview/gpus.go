package clusterview

import (
	"cmp"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NameOf returns the name of a device's GPU, which begins the name of the device; "" for a device of the whole node.
func NameOf(device string) string { return device[:nameLength(device)] }

// Attribute returns an attribute of the driver's domain.
func Attribute(d *resourceapi.Device, driver, name string) resourceapi.DeviceAttribute {
	if value, ok := d.Attributes[resourceapi.QualifiedName(name)]; ok {
		return value
	}
	return d.Attributes[resourceapi.QualifiedName(driver+"/"+name)]
}

// Text returns an attribute that is a string; "" without one.
func Text(d *resourceapi.Device, driver, name string) string {
	if value := Attribute(d, driver, name).StringValue; value != nil {
		return *value
	}
	return ""
}

// GPUs returns the physical GPUs of a driver, by node, index and name.
func (c *Cluster) GPUs(driver string) []*GPU {
	var all []*GPU
	for _, n := range c.Nodes {
		all = append(all, n.GPUs(driver)...)
	}
	return all
}

// GPUs returns the physical GPUs of a driver on the node, by index and name.
func (n *Node) GPUs(driver string) []*GPU {
	found := map[string]*GPU{}
	for _, p := range n.Pools {
		if p.Driver != driver {
			continue
		}
		for _, piece := range p.pieces {
			names := piece.names()
			for i := range piece.shape.gpus {
				facts := &piece.shape.gpus[i]
				name := names[facts.name]
				if found[name] == nil {
					found[name] = &GPU{Node: n, Name: name}
				}
				found[name].add(facts, names)
				found[name].addRules(p, facts)
			}
		}
	}
	for _, p := range n.Pools {
		if p.Driver == driver {
			p.addParts(found)
		}
	}
	all := slices.Collect(maps.Values(found))
	for _, g := range all {
		g.finish()
	}
	slices.SortFunc(all, func(a, b *GPU) int {
		return cmp.Or(compareIndex(a.Index, b.Index), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// compareIndex puts an unknown index last.
func compareIndex(a, b *int64) int {
	switch {
	case a != nil && b != nil:
		return cmp.Compare(*a, *b)
	case a != nil:
		return -1
	case b != nil:
		return 1
	}
	return 0
}

// add adds the devices of a ResourceSlice.
func (g *GPU) add(facts *gpuFacts, names []string) {
	g.Devices, g.Profiles = sum(g.Devices, facts.devices), sum(g.Profiles, facts.profiles)
	if facts.uuid >= 0 {
		g.UUID = cmp.Or(g.UUID, names[facts.uuid])
	}
	if facts.index >= 0 {
		g.Index = new(number(names[facts.index]))
	}
	g.Product, g.DriverVersion = cmp.Or(g.Product, facts.product), cmp.Or(g.DriverVersion, facts.version)
	g.Memory, g.MemorySlices = max(g.Memory, facts.memory), max(g.MemorySlices, facts.memorySlices)
	for i := range facts.taints {
		t := facts.taints[i].Taint
		for _, at := range facts.taints[i].added {
			t.Since = earlier(t.Since, added(names[at]))
		}
		g.addTaint(t)
	}
}

// sum adds numbers; it changes neither, and returns the only one that is not empty.
func sum(a, b map[string]int) map[string]int {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	all := maps.Clone(a)
	for name, n := range b {
		all[name] += n
	}
	return all
}

// earlier returns the earlier time; nil is unknown.
func earlier(a, b *metav1.Time) *metav1.Time {
	if a == nil || b != nil && b.Before(a) {
		return b
	}
	return a
}

func (g *GPU) addTaint(t Taint) {
	for i := range g.Taints {
		if have := &g.Taints[i]; have.Key == t.Key && have.Value == t.Value && have.Effect == t.Effect {
			have.Devices, have.Since = have.Devices+t.Devices, earlier(have.Since, t.Since)
			return
		}
	}
	g.Taints = append(g.Taints, t)
}

// addRules adds the taints of DeviceTaintRules.
func (g *GPU) addRules(p *Pool, facts *gpuFacts) {
	for _, rule := range p.rules {
		t := &rule.Spec.Taint
		added := Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect), Since: t.TimeAdded, Devices: len(facts.members)}
		if only := rule.Spec.DeviceSelector.Device; only != nil {
			name, suffix := split(*only)
			if _, found := facts.members[suffix]; name != g.Name || !found {
				continue
			}
			added.Devices = 1
		}
		g.addTaint(added)
	}
}

// split splits the name of a device after the name of its GPU.
func split(device string) (name, suffix string) {
	n := nameLength(device)
	return device[:n], device[n:]
}

// addParts adds the devices in use to their GPUs.
func (p *Pool) addParts(gpus map[string]*GPU) {
	for first := 0; first < len(p.Uses); {
		device := p.Uses[first].Result.Device
		last := first
		for last < len(p.Uses) && p.Uses[last].Result.Device == device {
			last++
		}
		name, _ := split(device)
		if g := gpus[name]; g != nil {
			part := Part{Device: device, Uses: p.Uses[first:last:last]}
			part.fill(p)
			g.Parts = append(g.Parts, part)
		}
		first = last
	}
}

// fill adds the facts about the device; a device that is no longer advertised has none.
func (part *Part) fill(p *Pool) {
	name, suffix := split(part.Device)
	for _, piece := range p.pieces {
		names := piece.names()
		for i := range piece.shape.gpus {
			if facts := &piece.shape.gpus[i]; names[facts.name] == name {
				if m, found := facts.members[suffix]; found {
					part.Type, part.Profile, part.Start, part.Size, part.Memory = m.kind, m.profile, m.start, m.size, m.memory
					return
				}
			}
		}
	}
}

// finish computes the free memory, and sorts the parts.
func (g *GPU) finish() {
	g.Free = g.Memory
	for i := range g.Parts {
		g.Free -= g.Parts[i].held()
	}
	g.Free = max(g.Free, 0)
	slices.SortStableFunc(g.Parts, func(a, b Part) int {
		return cmp.Or(cmp.Compare(kindOrder(a.Type), kindOrder(b.Type)), cmp.Compare(a.Start, b.Start))
	})
}

func kindOrder(kind string) int {
	if kind == typeMIG {
		return 0
	}
	return 1
}

// held is the memory that the claims hold: all of the device, or the memory that the shares consume.
func (part *Part) held() (bytes int64) {
	for _, use := range part.Uses {
		if use.Result.ShareID == nil {
			return part.Memory
		}
		consumed := use.Result.ConsumedCapacity[counterMemory]
		bytes += consumed.Value()
	}
	return bytes
}
