package publish

import (
	"cmp"
	"regexp"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// CapMIGMemory is the memory of a MIG device, in bytes: the same amount as CapMemory, which whole GPUs have too. A request for it is never
// answered with a whole GPU.
const CapMIGMemory = "migMemory"

// mig publishes MIG devices. A device of another type gets nothing from it.
type mig struct{}

// Type is gpu.TypeMIG.
func (mig) Type() gpu.DeviceType { return gpu.TypeMIG }

// dynamicMIG are the attributes of a MIG device that is made for a claim. A node has some 200 of them, and the scheduler copies the
// attributes of each into a map for each expression that it evaluates: the ninth of a domain makes that map grow, and the fifteenth once
// more. Such a device gets its UUID when it is made, it is for one claim, and its GPU is selected by parentUUID or the PCI address.
var dynamicMIG = []resourceapi.QualifiedName{
	AttrType, AttrProfile, AttrParentUUID, AttrProductName, AttrArchitecture, AttrCUDAComputeCapability, AttrDriverVersion, AttrCUDADriverVersion,
	AttrPCIeRoot, AttrPCIBusID, AttrNUMANode,
}

// nvidiaDriver is the name of NVIDIA's driver, whose MIG devices also have AttrBrand. Claims that were written for it may select by that.
const nvidiaDriver = "gpu.nvidia.com"

// dynamicNVIDIA are the same under the name of NVIDIA's driver.
var dynamicNVIDIA = append([]resourceapi.QualifiedName{AttrBrand}, dynamicMIG...)

// Attributes are the common ones of a pre-created MIG device, of others dynamicMIG. Nothing limits the memory of several claims of one MIG
// device.
func (mig) Attributes(d gpu.Device, common Attributes, driverName string) Attributes {
	switch device, ok := d.(gpu.MIGDevice); {
	case ok && device.Static != nil:
		if !d.Shares().Shared() {
			common[AttrMemoryEnforcement] = text(enforcementHardware)
		}
		return common
	case driverName == nvidiaDriver:
		return keep(common, dynamicNVIDIA...)
	default:
		return keep(common, dynamicMIG...)
	}
}

// Capacities are memory, engines, and the capacities by which a claim selects the profile.
func (mig) Capacities(d gpu.Device, _ *gpu.Node, driverName string) Capacities {
	set := withEngines(d)
	addSelectable(set, driverName, d)
	return set
}

// Counters are the memory, the memory slices, and the media extensions of the device.
func (mig) Counters(d gpu.Device, _ Counters) Counters {
	use := d.Use(false)
	takes := Counters{CounterMemory: bytes(d.Capacity().MemoryBytes)}
	for i := range use.Placement.Size {
		takes[memorySlice(use.Placement.Start+i)] = one()
	}
	if use.MediaExtensions {
		takes[CounterMediaExtensions] = one()
	}
	return takes
}

// Compare puts the smallest device first: little memory, few compute slices, no media extensions. Of equal devices the highest placement
// comes first: fewer and smaller profiles reach there, so profiles that need the low memory slices stay possible longest.
func (mig) Compare(a, b gpu.Device) int {
	x, ok := a.(gpu.MIGDevice)
	y, too := b.(gpu.MIGDevice)
	if !ok || !too {
		return 0
	}
	return cmp.Or(
		cmp.Compare(x.Profile.Capacity.MemoryBytes, y.Profile.Capacity.MemoryBytes),
		cmp.Compare(x.Profile.Slices, y.Profile.Slices),
		cmp.Compare(media(x.Profile), media(y.Profile)),
		cmp.Compare(x.Profile.ID, y.Profile.ID),
		cmp.Compare(y.Placement.Start, x.Placement.Start),
	)
}

// media counts the media extensions of a profile.
func media(p *gpu.MIGProfile) int {
	if p.HasMediaExtensions() {
		return 1
	}
	return 0
}

// profileName matches the profiles that get a name from ProfileCapacity.
var profileName = regexp.MustCompile(`^[0-9][0-9A-Za-z.]*([+-][0-9A-Za-z.]+)*$`)

// profileIdentifiers replaces the characters of a profile that no C identifier has.
var profileIdentifiers = strings.NewReplacer(".", "", "+", "_", "-", "_no_")

// ProfileCapacity is the name, without domain, of the capacity of the MIG devices of a profile, and of no other devices: a C identifier. It
// counts the claims that a device is for: 1, or the number of shares of a pre-created MIG device for several claims. A request for 1
// selects the profile, and one share of such a device.
//
// Dots are left out, "+" becomes "_", and "-" becomes "_no_": otherwise "1g.24gb+me" and "1g.24gb-me" would get the same name. For a
// profile with other characters, or a name beyond the API's limit of 32, there is no such capacity, and the empty string is returned.
func ProfileCapacity(profile string) string {
	name := "p" + profileIdentifiers.Replace(profile)
	if !profileName.MatchString(profile) || len(name) > resourceapi.DeviceMaxIDLength {
		return ""
	}
	return name
}

// addSelectable adds the capacities by which a claim selects a MIG device. The others of the device are in the set already.
//
// Their names carry the domain: the allocator of Kubernetes 1.36 and 1.37 compares the names in a claim literally with the names in a
// ResourceSlice, and a name without a domain would also match devices of other drivers. With the domain a claim means these devices alone.
// From 1.38 on a claim with the domain also matches names without it. They can be published without it when 1.38 is the oldest supported
// Kubernetes, schedulers included, and no other name contains the domain.
func addSelectable(set Capacities, driverName string, d gpu.Device) {
	qualified := func(name string) resourceapi.QualifiedName { return resourceapi.QualifiedName(driverName + "/" + name) }
	set[qualified(CapMIGMemory)] = set[CapMemory]
	if name := ProfileCapacity(d.ProfileName()); name != "" {
		set[qualified(name)] = claims(d.Shares().Count)
	}
}
