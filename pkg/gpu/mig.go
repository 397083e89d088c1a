package gpu

import (
	"slices"
	"strings"
)

// MIGUUID names a MIG device as NVML prints it, "MIG-" and five groups of hex digits. The name is made from the GPU, the id of the GPU
// instance and the engine: a device that is made again in its place gets the same one, also with another profile or size. So another UUID
// means another device, and the same UUID proves nothing.
type MIGUUID string

// Placement is the place of a GPU instance: consecutive memory slices of the GPU.
type Placement struct {
	// Start is the first memory slice, Size how many there are.
	Start int `json:"start"`
	Size  int `json:"size"`
}

// Overlaps reports whether the two share a memory slice.
func (p Placement) Overlaps(other Placement) bool {
	return p.Start < other.Start+other.Size && other.Start < p.Start+p.Size
}

// MIGProfile is one kind of GPU instance that a GPU can be partitioned into.
type MIGProfile struct {
	// ID is the driver's id of the GPU instance profile.
	ID int
	// Name is the profile's as nvidia-smi prints it: "1g.10gb", "1g.10gb+me".
	Name string
	// Slices counts compute slices.
	Slices int
	// MaxInstances is how many instances of it the driver makes on an empty GPU.
	MaxInstances int
	// Capacity is the capacity of one instance.
	Capacity Capacity
	// Placements are all that are possible on an empty GPU.
	Placements []Placement
}

// HasMediaExtensions reports whether an instance of the profile owns the engines that a GPU has for one instance only. At most
// one instance of all profiles that have them fits on a GPU.
func (p *MIGProfile) HasMediaExtensions() bool {
	_, extras, _ := strings.Cut(p.Name, "+")
	for extra := range strings.SplitSeq(extras, "+") {
		if extra == "me" || strings.HasPrefix(extra, "me.") {
			return true
		}
	}
	return false
}

// HasGraphics reports whether programs can draw on the MIG devices of a profile with that name.
func HasGraphics(profile string) bool {
	_, extras, _ := strings.Cut(profile, "+")
	return slices.Contains(strings.FieldsFunc(extras, func(r rune) bool { return r == '+' || r == ',' }), "gfx")
}

// MIGMode says whether a GPU is partitioned into instances.
type MIGMode struct {
	// Enabled is the mode now, Pending the mode after the next reset of the GPU.
	Enabled, Pending bool
	// NeedsReset: a change takes effect only with a reset, which Prism does not do.
	NeedsReset bool
}

// ComputeInstance is a part of a GPU instance that programs run on.
type ComputeInstance struct {
	// ID is the driver's, unique inside the GPU instance and used again after a deletion.
	ID int
	// Slices counts its compute slices: fewer than the GPU instance's if several share that instance.
	Slices int
	// Part: it does not have all multiprocessors that one compute instance of its GPU instance can have. Compute slices do not show it: one
	// of one compute slice may leave a part of a double-memory instance unused.
	Part bool
	// UUID is the MIG device's.
	UUID MIGUUID
}

// MIGIdentity distinguishes one MIG device from all others that exist at the same time. A later one in its place can get the same.
type MIGIdentity struct {
	// GPUInstance and ComputeInstance are the driver's ids, used again after a deletion.
	GPUInstance     int `json:"gpuInstance"`
	ComputeInstance int `json:"computeInstance"`
	// UUID is empty if nothing exists yet.
	UUID MIGUUID `json:"uuid,omitempty"`
}

// Instance is a partition that exists on a GPU.
type Instance struct {
	// ID is the driver's, unique on the GPU and used again after a deletion.
	ID int
	// Profile is the ID of its profile.
	Profile int
	// Placement is its place on the GPU.
	Placement Placement
	// Compute are its compute instances; none while it is made or after it was half removed.
	Compute []ComputeInstance
}

// Filled returns whether one compute instance has all of the GPU instance.
func (i *Instance) Filled() bool { return len(i.Compute) == 1 && !i.Compute[0].Part }

// MIG is how a GPU can be partitioned and how it is now.
type MIG struct {
	// Mode is whether it may be partitioned.
	Mode MIGMode
	// Profiles are the kinds of instances, in the driver's order.
	Profiles []MIGProfile
	// Instances are the existing ones, in the order of their IDs. If their origin matters they are pre-created: the claims' instances are
	// known from the claims' records.
	Instances []Instance
}

// MemorySlices counts the units of placements, 0 without a profile.
func (m *MIG) MemorySlices() int {
	n := 0
	for i := range m.Profiles {
		for _, p := range m.Profiles[i].Placements {
			n = max(n, p.Start+p.Size)
		}
	}
	return n
}

// Profile returns the profile with that ID, false when the GPU lacks it.
func (m *MIG) Profile(id int) (*MIGProfile, bool) {
	for i := range m.Profiles {
		if m.Profiles[i].ID == id {
			return &m.Profiles[i], true
		}
	}
	return nil, false
}

// ProfileNames lists the profiles in the driver's order.
func (m *MIG) ProfileNames() []string {
	names := make([]string, len(m.Profiles))
	for i := range m.Profiles {
		names[i] = m.Profiles[i].Name
	}
	return names
}
