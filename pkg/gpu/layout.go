package gpu

import (
	"maps"
	"slices"
)

// Layout says what each GPU of a node is to be offered as. A GPU without an entry is offered whole; so is every GPU of a nil
// layout.
type Layout map[UUID]Offer

// Offer is what one GPU is to be offered as.
type Offer struct {
	// Whole: the GPU as it is.
	Whole bool
	// TimeSlice: the GPU for several claims at once; nil without.
	TimeSlice *Replicas
	// MIG are the names of the profiles whose placements are offered; empty without MIG.
	MIG []string
	// MIGReplicas is, by profile, how many claims may use one instance that an administrator made at once; without an entry one. An
	// instance that is made for a claim is that claim's alone.
	MIGReplicas map[string]int
	// MIGResources is, by profile, the extended resource that requests one of these where it is not called after the profile.
	MIGResources map[string]string
	// OneShare refuses a request of an extended resource for more than one of what several claims use at once.
	OneShare bool
	// Static: the GPU counts as offered in parts whatever profiles are on offer: an administrator has cut it, as Layout.Of finds, or
	// a claim holds it from the pool of its parts.
	Static bool
	// Disjoint: no two devices on offer exclude each other, as nothing else would keep them apart. See Layout.Disjoint.
	Disjoint bool
	// Withheld is what claims have of the GPU and no device stands for any more. What it excludes is not advertised. It is of the
	// moment and never saved.
	Withheld []Use `json:"-"`
}

// Disjoint is the layout for an API server that keeps no counters: every GPU has one family of devices, and all of them can be
// used at the same time. Pools and names stay, so that devices in use stay known as such.
func (l Layout) Disjoint() Layout {
	disjoint := maps.Clone(l)
	for id, offer := range disjoint {
		disjoint[id] = offer.WithoutCounters()
	}
	return disjoint
}

// WithoutCounters is the offer for such a server.
func (o Offer) WithoutCounters() Offer {
	o.Disjoint = o.Partitioned()
	return o
}

// Of returns what the GPU is to be offered as. A GPU that an administrator has cut is offered in parts.
func (l Layout) Of(g *GPU) Offer {
	offer, ok := l[g.UUID]
	if !ok {
		offer = Offer{Whole: true}
	}
	offer.Static = offer.Static || g.MIG != nil && len(g.MIG.Instances) > 0
	return offer
}

// Partitioned tells whether parts of the GPU, or turns on it, may be on offer. Its devices then have a pool of their own, and exclude
// each other by counters where the offer is not disjoint.
func (o Offer) Partitioned() bool { return len(o.MIG) > 0 || o.Static || o.TimeSlice != nil }

// Shared tells whether a device of the GPU may be for several claims at once.
func (o Offer) Shared() bool { return o.TimeSlice != nil || len(o.MIGReplicas) > 0 }

// Equal tells whether two offers of one GPU come to the same devices in the same pool. The order of profiles counts.
func (o Offer) Equal(other Offer) bool {
	return o.Whole == other.Whole && o.Partitioned() == other.Partitioned() && o.Disjoint == other.Disjoint && slices.Equal(o.MIG, other.MIG) &&
		maps.Equal(o.MIGReplicas, other.MIGReplicas) && maps.Equal(o.MIGResources, other.MIGResources) &&
		o.TimeSlice.equal(other.TimeSlice) && slices.Equal(o.Withheld, other.Withheld)
}

// With is the offer and one profile more, in the GPU's order.
func (o Offer) With(profile string, g *GPU) Offer {
	if g.MIG == nil || slices.Contains(o.MIG, profile) {
		return o
	}
	offered := o.MIG
	o.MIG = slices.DeleteFunc(g.MIG.ProfileNames(), func(name string) bool {
		return name != profile && !slices.Contains(offered, name)
	})
	return o
}

// Pool names the pool of the GPU's devices: the node's, or "<node>/gpu-<id>" for a partitioned one.
func (o Offer) Pool(node string, g *GPU) string {
	if o.Partitioned() {
		return node + "/" + string(Whole{GPU: g}.Name())
	}
	return node
}

// Devices lists what the GPU can give in the state it is in: itself for one claim, then for several, then MIG devices in the
// order of their profiles and placements.
//
// Where the MIG mode is fixed until a reset, it says whether the GPU or MIG devices can be given. An instance that Prism did not make
// is offered, whatever the profiles on offer, if one compute instance fills it. The GPU itself and everything that cannot be beside
// such an instance are left out, and so is everything that cannot be beside what is withheld.
//
// A disjoint offer has the first of these that is offered and can be: the GPU for one claim, the GPU for several, a fixed choice of
// MIG devices of which no two exclude each other.
func (o Offer) Devices(g *GPU) []Device {
	var devices []Device
	if d := (Whole{GPU: g}); o.Whole && !cut(d) && !o.withholds(d) {
		devices = append(devices, d)
	}
	if o.TimeSlice != nil && (len(devices) == 0 || !o.Disjoint) {
		d := TimeSliced{GPU: g, Replicas: o.TimeSlice.Count, ShareName: o.TimeSlice.ShareName}
		if !cut(d) && !o.withholds(d) {
			devices = append(devices, d)
		}
	}
	if len(devices) == 0 || !o.Disjoint {
		for _, d := range o.migDevices(g) {
			devices = append(devices, d)
		}
	}
	return devices
}

// cut tells whether the GPU can only be given in parts now, so not as this device of all of it.
func cut(d Device) bool {
	g := d.Parent()
	if g.MIG == nil {
		return false
	}
	return g.MIG.Mode.NeedsReset && g.MIG.Mode.Enabled || slices.ContainsFunc(g.MIG.Instances, func(instance Instance) bool {
		return Excludes(UseOf(d, false), instance.part(g))
	})
}

// withholds tells whether a claim has what excludes the device.
func (o Offer) withholds(d Device) bool {
	return slices.ContainsFunc(o.Withheld, func(u Use) bool { return Excludes(u, next(d)) })
}

// migDevices lists the MIG devices on offer, in the order of their profiles and placements.
func (o Offer) migDevices(g *GPU) []MIGDevice {
	if !o.Partitioned() || g.MIG == nil || g.MIG.Mode.NeedsReset && !g.MIG.Mode.Enabled {
		return nil
	}
	static := g.MIG.Instances
	var devices []MIGDevice
	for i := range g.MIG.Profiles {
		profile := &g.MIG.Profiles[i]
		for _, placement := range profile.Placements {
			d := MIGDevice{GPU: g, Profile: profile, Placement: placement}
			if o.gives(&d, static) && !o.withholds(d) {
				devices = append(devices, d)
			}
		}
	}
	if o.Disjoint {
		return tiles(g, devices)
	}
	return devices
}

// gives tells whether a MIG device is on offer beside the static instances: it is one of them, which it learns, or free to be
// made.
func (o Offer) gives(d *MIGDevice, static []Instance) bool {
	for i := range static {
		if d.is(static[i]) {
			if !static[i].Filled() {
				return false
			}
			compute := static[i].Compute[0]
			if n := o.MIGReplicas[d.Profile.Name]; n > 1 {
				d.Replicas = n
			}
			d.Static = &MIGIdentity{GPUInstance: static[i].ID, ComputeInstance: compute.ID, UUID: compute.UUID}
			return true
		}
	}
	return slices.Contains(o.MIG, d.Profile.Name) &&
		!slices.ContainsFunc(static, func(instance Instance) bool { return d.excludes(&instance) })
}
