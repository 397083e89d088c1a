package gpu

import "fmt"

// MIGDevice is a GPU instance at one placement with one compute instance that fills it, whether it exists yet or not.
//
// A compute instance smaller than its GPU instance will be another device, whose name goes on after the placement.
type MIGDevice struct {
	// GPU is the one that is cut.
	GPU *GPU
	// Profile is one of the GPU's.
	Profile *MIGProfile
	// Placement is one of the profile's.
	Placement Placement
	// Static is the instance that an administrator made there; nil for one that is made when a claim is prepared.
	Static *MIGIdentity
	// Replicas is how many claims may use a static instance at once, in turns; 0 for one that is not shared.
	Replicas int
}

// Name is "gpu-<id>-mig-<profile ID>-<start>". Profile names do not fit into a device name: they have "." and "+".
func (d MIGDevice) Name() DeviceName {
	return DeviceName(fmt.Sprintf("gpu-%s-mig-%d-%d", d.GPU.ID, d.Profile.ID, d.Placement.Start))
}

// Type is TypeMIG.
func (MIGDevice) Type() DeviceType { return TypeMIG }

// Parent is the GPU that is cut.
func (d MIGDevice) Parent() *GPU { return d.GPU }

func (MIGDevice) sealed() {}

// Path is "<GPU UUID>/<profile ID>/<start>": it identifies the placement, as no UUID does before the instance is made.
func (d MIGDevice) Path() string {
	return fmt.Sprintf("%s/%d/%d", d.GPU.UUID, d.Profile.ID, d.Placement.Start)
}

// is tells whether the device is that instance.
func (d MIGDevice) is(instance Instance) bool {
	return d.Profile.ID == instance.Profile && d.Placement == instance.Placement
}

// part is what the instance takes of its GPU, whichever device it is.
func (d MIGDevice) part() Use {
	return Use{Type: TypeMIG, Placement: d.Placement, MediaExtensions: d.Profile.HasMediaExtensions()}
}

// excludes tells whether the device cannot be made while that instance is on its GPU.
func (d MIGDevice) excludes(instance *Instance) bool { return Excludes(d.part(), instance.part(d.GPU)) }

// part is what an instance takes of its GPU.
func (i *Instance) part(g *GPU) Use {
	profile, known := g.MIG.Profile(i.Profile)
	return Use{Type: TypeMIG, Placement: i.Placement, MediaExtensions: known && profile.HasMediaExtensions()}
}
