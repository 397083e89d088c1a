package reconcile

import (
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// Use is a claim as the kubelet lists it for a container. The kubelet knows claims by name; their UIDs are in the names of the driver's
// CDI devices.
type Use struct {
	Namespace, Name string
	// Devices are the names, in the driver's CDI specs, of the prepared devices; empty before the claim is prepared, and for a claim that only
	// uses devices of other drivers.
	Devices []string
}

// has reports whether the use may belong to the claim. Another claim of the same name uses other devices.
func (u Use) has(c checkpoint.Claim) bool {
	if len(u.Devices) == 0 {
		return u.Namespace == c.Namespace && u.Name == c.Name
	}
	return slices.ContainsFunc(u.Devices, func(device string) bool { return strings.HasPrefix(device, c.UID+"-") })
}

func inUse(c checkpoint.Claim, uses []Use) bool {
	return slices.ContainsFunc(uses, func(u Use) bool { return u.has(c) })
}

// devices lists the devices of all uses.
func devices(uses []Use) []string {
	var all []string
	for _, u := range uses {
		all = append(all, u.Devices...)
	}
	return all
}
