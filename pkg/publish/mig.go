package publish

import (
	"regexp"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// CapMIGMemory is the memory of a MIG device, in bytes: the same amount as CapMemory, which whole GPUs have too. A request for it is never
// answered with a whole GPU.
const CapMIGMemory = "migMemory"

// profileName is what ProfileCapacity has a name for.
var profileName = regexp.MustCompile(`^[0-9][0-9A-Za-z.]*([+-][0-9A-Za-z.]+)*$`)

// ProfileCapacity is the name, without domain, of the capacity that the MIG devices of a profile have, and no other devices: a C identifier.
// It counts how many claims a device is for: 1, and the number of its shares where an administrator's MIG device is for several. A request
// for 1 selects the profile, and one share of such a device.
//
// Dots are left out, "+" becomes "_", and "-" becomes "_no_": without it "1g.24gb+me" and "1g.24gb-me" had one name. A profile with other
// characters, or a name beyond the API's limit of 32, has no such capacity, and the empty string is returned.
func ProfileCapacity(profile string) string {
	name := "p" + strings.NewReplacer(".", "", "+", "_", "-", "_no_").Replace(profile)
	if !profileName.MatchString(profile) || len(name) > resourceapi.DeviceMaxIDLength {
		return ""
	}
	return name
}

// addSelectable adds the capacities by which a claim selects a MIG device that n claims may use at once. The others of the device are in the
// set already.
//
// Their names carry the domain: the allocator of Kubernetes 1.36 and 1.37 compares the names in a claim with those in a ResourceSlice as they
// are written, and a name without a domain would also match devices of other drivers. With the domain a claim means these devices alone.
func addSelectable(set capacitySet, driver string, d gpu.MIGDevice, n int) {
	qualified := func(name string) resourceapi.QualifiedName { return resourceapi.QualifiedName(driver + "/" + name) }
	set[qualified(CapMIGMemory)] = set[CapMemory]
	if name := ProfileCapacity(d.Profile.Name); name != "" {
		set[qualified(name)] = claims(n)
	}
}
