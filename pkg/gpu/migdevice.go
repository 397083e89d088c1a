package gpu

import (
	"fmt"
	"slices"
)

// TypeMIG is a GPU instance, made for one claim or pre-created.
const TypeMIG DeviceType = "mig"

// MIGDevice is a GPU instance at one placement with one compute instance that fills it, whether it exists yet or not.
//
// A compute instance smaller than its GPU instance will be another device, whose name goes on after the placement.
type MIGDevice struct {
	// GPU is the one that is partitioned.
	GPU *GPU
	// Profile is one of the GPU's.
	Profile *MIGProfile
	// Placement is one of the profile's.
	Placement Placement
	// Static identifies a pre-created device; nil for one that is made when a claim is prepared.
	Static *MIGIdentity
	// Replicas is how many claims may share a pre-created device by time-slicing; 0 for one that is not shared.
	Replicas int
}

// Name is "gpu-<id>-mig-<profile ID>-<start>". Profile names do not fit into a device name: they have "." and "+".
func (d MIGDevice) Name() DeviceName {
	return DeviceName(fmt.Sprintf("gpu-%s-mig-%d-%d", d.GPU.ID, d.Profile.ID, d.Placement.Start))
}

// Type is TypeMIG.
func (MIGDevice) Type() DeviceType { return TypeMIG }

// Parent is the GPU that is partitioned.
func (d MIGDevice) Parent() *GPU { return d.GPU }

// ID is "<GPU UUID>/<profile ID>/<start>": it identifies the placement, as no UUID does before the instance is made.
func (d MIGDevice) ID() string {
	return fmt.Sprintf("%s/%d/%d", d.GPU.UUID, d.Profile.ID, d.Placement.Start)
}

// ProfileName is the profile's.
func (d MIGDevice) ProfileName() string { return d.Profile.Name }

// Capacity is the profile's.
func (d MIGDevice) Capacity() Capacity { return d.Profile.Capacity }

// Shares are the replicas of a pre-created device, else one.
func (d MIGDevice) Shares() Shares { return Shares{Count: max(d.Replicas, 1)} }

// Use is the placement, and the media extensions if the profile includes them.
func (d MIGDevice) Use(share bool) Use {
	u := d.part()
	u.Device, u.Shared = d.Name(), share
	return u
}

// is reports whether the device is that instance.
func (d MIGDevice) is(instance Instance) bool {
	return d.Profile.ID == instance.Profile && d.Placement == instance.Placement
}

// part is the part of its GPU that the instance takes, whichever device it is.
func (d MIGDevice) part() Use {
	return Use{Type: TypeMIG, Placement: d.Placement, MediaExtensions: d.Profile.HasMediaExtensions()}
}

// excludes reports whether the device cannot be made while that instance is on its GPU.
func (d MIGDevice) excludes(instance *Instance) bool { return Excludes(d.part(), instance.part(d.GPU)) }

// part is the part of its GPU that an instance takes.
func (i *Instance) part(g *GPU) Use {
	profile, known := g.MIG.Profile(i.Profile)
	return Use{Type: TypeMIG, Placement: i.Placement, MediaExtensions: known && profile.HasMediaExtensions()}
}

// migDevices lists the advertised MIG devices, in the order of their profiles and placements.
func migDevices(o Modes, g *GPU) []Device {
	if !o.Partitioned() || g.MIG == nil || g.MIG.Mode.NeedsReset && !g.MIG.Mode.Enabled {
		return nil
	}
	static := g.MIG.Instances
	var all []MIGDevice
	for i := range g.MIG.Profiles {
		profile := &g.MIG.Profiles[i]
		for _, placement := range profile.Placements {
			d := MIGDevice{GPU: g, Profile: profile, Placement: placement}
			if o.hasMIG(&d, static) && !o.withholds(d) {
				all = append(all, d)
			}
		}
	}
	if o.Disjoint {
		all = tiles(g, all)
	}
	devices := make([]Device, len(all))
	for i, d := range all {
		devices[i] = d
	}
	return devices
}

// hasMIG reports whether a MIG device is advertised beside the static instances: it is one of them, whose identity it gets, or can be
// made.
func (o Modes) hasMIG(d *MIGDevice, static []Instance) bool {
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
