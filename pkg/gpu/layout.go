package gpu

import (
	"maps"
	"slices"
)

// Layout says how each GPU of a node is to be advertised. A GPU without an entry is advertised whole; so is every GPU of a nil layout.
type Layout map[UUID]Modes

// Modes are the modes in which one GPU is to be advertised.
type Modes struct {
	// Whole: the GPU as it is.
	Whole bool
	// TimeSlice: the GPU for several claims at once; nil without.
	TimeSlice *Replicas
	// MPS: the GPU for several claims at once, with MPS; nil without.
	MPS *MPSSharing `json:",omitempty"`
	// MIG are the names of the profiles whose placements are advertised; empty without MIG.
	MIG []string
	// MIGReplicas is, by profile, how many claims may share one pre-created MIG device; without an entry one. A MIG device that is made
	// for a claim is exclusive to that claim.
	MIGReplicas map[string]int
	// MIGResources is, by profile, the extended resource that requests one of these if it is not called after the profile.
	MIGResources map[string]string
	// MemoryBytes is the memory of the GPU if the driver does not report it; 0 if it is not needed. See Layout.Sized.
	MemoryBytes uint64 `json:",omitempty"`
	// OneShare refuses a request of an extended resource for more than one time-sliced share. One for several MPS shares is always refused.
	OneShare bool
	// Static: the GPU counts as partitioned whatever profiles are advertised: MIG devices were pre-created on it, as Layout.Of finds, or
	// a claim holds it from the pool of a partitioned GPU.
	Static bool
	// Disjoint: no two advertised devices exclude each other, as nothing else would keep them apart. See Layout.Disjoint.
	Disjoint bool
	// Withheld are the uses of the GPU by claims while no device stands for them. Devices that they exclude are not advertised. It holds
	// for the moment and is never saved.
	Withheld []Use `json:"-"`
	// Extra are further modes, after the modes of this package. They are not saved.
	Extra []Mode `json:"-"`
}

// Mode lists the devices of one family on a GPU. Values are comparable: equal modes list equal devices.
type Mode interface {
	// Devices lists them for a GPU that is advertised in modes o. The caller leaves out the devices that the MIG mode of the GPU,
	// pre-created MIG devices and withheld uses exclude.
	Devices(o Modes, g *GPU) []Device
}

// SharedMode is a Mode whose devices may have shares.
type SharedMode interface {
	Mode
	// Shared reports whether they have.
	Shared() bool
}

// family is what is known of the devices of one type, also of those that only a record names.
type family struct {
	kind DeviceType
	// devices lists the devices of a GPU.
	devices func(o Modes, g *GPU) []Device
	// entireGPU and consumable are the answers of EntireGPU and Consumable.
	entireGPU, consumable bool
}

// families are in the order of Modes.Devices. Additional devices are none of them.
var families = [...]family{
	{kind: TypeGPU, devices: wholeDevices, entireGPU: true},
	{kind: TypeTimeSlice, devices: timeSlicedDevices, entireGPU: true},
	{kind: TypeMPS, devices: mpsDevices, entireGPU: true, consumable: true},
	{kind: TypeMIG, devices: migDevices},
}

// EntireGPU reports whether a device of the type is a GPU, for one claim or for several, and no part of one. It is false for the type of
// a further mode.
func (t DeviceType) EntireGPU() bool { return t.family().entireGPU }

// Consumable reports whether every claim consumes capacities of such a device, so that its record does not say how much there is in all.
func (t DeviceType) Consumable() bool { return t.family().consumable }

func (t DeviceType) family() family {
	for _, f := range families {
		if f.kind == t {
			return f
		}
	}
	return family{}
}

// WithModes is the layout with further modes for every one of these GPUs, in place of those that they have. The layout itself stays.
func (l Layout) WithModes(gpus []GPU, added ...Mode) Layout {
	with := maps.Clone(l)
	if with == nil {
		with = Layout{}
	}
	for i := range gpus {
		modes, ok := l[gpus[i].UUID]
		if !ok {
			modes = Modes{Whole: true}
		}
		modes.Extra = added
		with[gpus[i].UUID] = modes
	}
	return with
}

// Sized is the node with the memory that the layout has for GPUs whose driver does not report it. The node itself stays.
func (l Layout) Sized(n *Node) *Node {
	sized := n
	for i := range n.GPUs {
		g := l[n.GPUs[i].UUID].Sized(&n.GPUs[i])
		if g == &n.GPUs[i] {
			continue
		}
		if sized == n {
			other := *n
			other.GPUs = slices.Clone(n.GPUs)
			sized = &other
		}
		sized.GPUs[i] = *g
	}
	return sized
}

// Sized is the GPU with that memory, or the GPU itself if the driver reports its memory or the modes set none.
func (o Modes) Sized(g *GPU) *GPU {
	if o.MemoryBytes == 0 || g.Capacity.MemoryBytes > 0 && !g.UnifiedMemory {
		return g
	}
	sized := *g
	sized.Capacity.MemoryBytes = o.MemoryBytes
	return &sized
}

// Disjoint is the layout for an API server that stores no shared counters: every GPU has devices of one family, and all of them can be
// used at the same time. Pools and names stay, so that devices in use stay known as such.
func (l Layout) Disjoint() Layout {
	disjoint := maps.Clone(l)
	for id, modes := range disjoint {
		disjoint[id] = modes.WithoutCounters()
	}
	return disjoint
}

// WithoutCounters are the modes in which the GPU is advertised to such a server.
func (o Modes) WithoutCounters() Modes {
	o.Disjoint = o.Partitioned()
	return o
}

// Of returns the modes in which the GPU is to be advertised. A GPU with pre-created MIG devices is partitioned.
func (l Layout) Of(g *GPU) Modes {
	modes, ok := l[g.UUID]
	if !ok {
		modes = Modes{Whole: true}
	}
	modes.Static = modes.Static || g.MIG != nil && len(g.MIG.Instances) > 0
	return modes
}

// Partitioned reports whether more than the GPU as it is may be advertised: MIG devices, or shares. Its devices then form a pool of their
// own, and exclude each other by counters unless they are disjoint.
func (o Modes) Partitioned() bool {
	return len(o.MIG) > 0 || o.Static || o.TimeSlice != nil || o.MPS != nil || len(o.Extra) > 0
}

// Shared reports whether a device of the GPU may be for several claims at once.
func (o Modes) Shared() bool { return o.SharesGPU() || len(o.MIGReplicas) > 0 }

// SharesGPU reports whether several claims may have shares of the whole GPU.
func (o Modes) SharesGPU() bool {
	return o.TimeSlice != nil || o.MPS != nil || slices.ContainsFunc(o.Extra, func(m Mode) bool {
		shared, is := m.(SharedMode)
		return is && shared.Shared()
	})
}

// Several reports whether the GPU may be allocated in more than one way.
func (o Modes) Several() bool {
	ways := len(o.Extra)
	for _, has := range []bool{o.Whole, o.TimeSlice != nil, o.MPS != nil, len(o.MIG) > 0} {
		if has {
			ways++
		}
	}
	return ways > 1
}

// Equal reports whether both come to the same devices of one GPU in the same pool. The order of profiles counts.
func (o Modes) Equal(other Modes) bool {
	return o.Whole == other.Whole && o.Partitioned() == other.Partitioned() && o.Disjoint == other.Disjoint && slices.Equal(o.MIG, other.MIG) &&
		maps.Equal(o.MIGReplicas, other.MIGReplicas) && maps.Equal(o.MIGResources, other.MIGResources) &&
		o.TimeSlice.equal(other.TimeSlice) && o.MPS.equal(other.MPS) && slices.Equal(o.Withheld, other.Withheld) && slices.Equal(o.Extra, other.Extra)
}

// With adds one profile, in the GPU's order.
func (o Modes) With(profile string, g *GPU) Modes {
	if g.MIG == nil || slices.Contains(o.MIG, profile) {
		return o
	}
	before := o.MIG
	o.MIG = slices.DeleteFunc(g.MIG.ProfileNames(), func(name string) bool {
		return name != profile && !slices.Contains(before, name)
	})
	return o
}

// Pool names the pool of the GPU's devices: the node's, or "<node>/gpu-<id>" for a partitioned one.
func (o Modes) Pool(node string, g *GPU) string {
	if o.Partitioned() {
		return node + "/" + string(Whole{GPU: g}.Name())
	}
	return node
}

// Devices lists the devices of the GPU that can be allocated in its present state: itself for one claim, then for several, then MIG
// devices in the order of their profiles and placements, then the devices of further modes.
//
// If the MIG mode is fixed until a reset, it decides between the GPU and MIG devices. A pre-created MIG device is advertised, whatever
// the advertised profiles, if one compute instance fills it. The GPU itself and everything that cannot be beside such a device are left
// out, and so is everything that a withheld use excludes.
//
// A disjoint GPU gets the first of these that is advertised and possible: the GPU for one claim, the GPU for several, a fixed choice of
// MIG devices of which no two exclude each other, the first device of the first further mode.
func (o Modes) Devices(g *GPU) []Device {
	var devices []Device
	for _, f := range families {
		if len(devices) == 0 || !o.Disjoint {
			devices = append(devices, f.devices(o, g)...)
		}
	}
	for _, mode := range o.Extra {
		if len(devices) == 0 || !o.Disjoint {
			devices = append(devices, o.extra(mode, g)...)
		}
	}
	return devices
}

// extra lists the devices of a further mode. Nothing is known of them that would make several disjoint.
func (o Modes) extra(mode Mode, g *GPU) []Device {
	var devices []Device
	for _, d := range mode.Devices(o, g) {
		devices = append(devices, o.available(d)...)
	}
	if o.Disjoint && len(devices) > 1 {
		return devices[:1]
	}
	return devices
}

// available is a device that is not part of a partitioned GPU, nothing if it cannot be allocated now.
func (o Modes) available(d Device) []Device {
	if partitionedNow(d) || o.withholds(d) {
		return nil
	}
	return []Device{d}
}

// partitionedNow reports whether only MIG devices of the device's GPU can be allocated now.
func partitionedNow(d Device) bool {
	g := d.Parent()
	if g.MIG == nil {
		return false
	}
	return g.MIG.Mode.NeedsReset && g.MIG.Mode.Enabled || slices.ContainsFunc(g.MIG.Instances, func(instance Instance) bool {
		return Excludes(d.Use(false), instance.part(g))
	})
}

// withholds reports whether a claim's use excludes the device.
func (o Modes) withholds(d Device) bool {
	return slices.ContainsFunc(o.Withheld, func(u Use) bool { return Excludes(u, next(d)) })
}
