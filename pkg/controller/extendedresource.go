package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

const (
	wholeGPU   = "nvidia.com/gpu"
	sliceOfGPU = "nvidia.com/mig-"
)

// Types of devices and the values of their attributes, as pkg/publish writes them.
const (
	typeGPU       = "gpu"
	typeMIG       = "mig"
	typeMPS       = "mps"
	typeTimeSlice = "timeslice"
	noShareName   = "none"
)

// use says which devices a resource name requests. Empty fields leave open which.
type use struct {
	Type      string `json:"type"`
	Profile   string `json:"profile,omitempty"`
	ShareName string `json:"shareName,omitempty"`
	// Shared is of slices: those that several claims may use at once.
	Shared bool `json:"shared,omitempty"`
	// OnlyOne refuses a request for several.
	OnlyOne bool `json:"onlyOne,omitempty"`
}

// names are the uses by resource name.
type names map[string][]use

func (n names) add(resource string, u use) {
	if !slices.Contains(n[resource], u) {
		n[resource] = append(n[resource], u)
	}
}

// sliceResource is the name that NVIDIA's device plugin gives the slices of a profile.
func sliceResource(profile string) string {
	return sliceOfGPU + strings.ReplaceAll(profile, "+", ".")
}

// namesOf reads the names that a configuration gives. It has its defaults. Whole GPUs have their name in every case, and are not
// in the answer.
func namesOf(c *v1alpha1.NodeConfig) names {
	n := names{}
	strategy := *c.Flags.MIGStrategy
	if strategy == v1alpha1.MIGStrategySingle {
		n.add(wholeGPU, use{Type: typeMIG})
	}
	for i := range c.GPUs {
		entry := &c.GPUs[i]
		n.timeSlice(entry)
		n.mps(entry)
		n.mig(entry, strategy)
	}
	return n
}

func (n names) timeSlice(entry *v1alpha1.GPUEntry) {
	if t := entry.TimeSlice; t != nil && t.ResourceName != nil {
		n.add(*t.ResourceName, use{Type: typeTimeSlice, ShareName: shareName(t.ShareName), OnlyOne: *entry.FailRequestsGreaterThanOne})
	}
}

// mps: a process uses one share, so that a request for several is refused whatever the entry says.
func (n names) mps(entry *v1alpha1.GPUEntry) {
	if m := entry.MPS; m != nil && m.ResourceName != nil {
		n.add(*m.ResourceName, use{Type: typeMPS, ShareName: shareName(m.ShareName), OnlyOne: true})
	}
}

func shareName(name *string) string {
	if name == nil {
		return noShareName
	}
	return *name
}

func (n names) mig(entry *v1alpha1.GPUEntry, strategy v1alpha1.MIGStrategy) {
	if entry.MIG == nil {
		return
	}
	mixed := strategy == v1alpha1.MIGStrategyMixed
	if mixed {
		for _, profile := range entry.MIG.Profiles {
			n.add(sliceResource(profile), use{Type: typeMIG, Profile: profile})
		}
	}
	for profile, replicas := range entry.MIG.Replicas {
		if profile == v1alpha1.AllProfiles {
			n.allSlices(entry, strategy)
			continue
		}
		name, named := entry.MIG.ResourceNames[profile]
		// In a file of the device plugin the strategy decides whether slices have names of their own.
		if named && len(entry.Origins) > 0 && !mixed {
			continue
		}
		if !named && mixed {
			name = sliceResource(profile)
		}
		if name != "" && replicas > 1 {
			n.add(name, use{Type: typeMIG, Profile: profile, Shared: true, OnlyOne: *entry.FailRequestsGreaterThanOne})
		}
	}
}

// allSlices names the shared slices of all profiles, where that is not the name that they have in any case.
func (n names) allSlices(entry *v1alpha1.GPUEntry, strategy v1alpha1.MIGStrategy) {
	name := entry.MIG.ResourceNames[v1alpha1.AllProfiles]
	if name == "" || name == wholeGPU && strategy == v1alpha1.MIGStrategySingle || entry.MIG.Replicas[v1alpha1.AllProfiles] < 2 {
		return
	}
	n.add(name, use{Type: typeMIG, Shared: true, OnlyOne: *entry.FailRequestsGreaterThanOne})
}

// expression selects the devices of these uses: the scheduler evaluates it on devices of other drivers too, which lack the
// attributes, so that the driver comes first. Slices of the profiles that are kept apart, an empty one means all, do not count as exclusive
// when shared.
func expression(driver string, uses []use, apart []string) string {
	attribute := func(name string) string { return fmt.Sprintf("device.attributes[%q].%s", driver, name) }
	var terms []string
	for _, u := range uses {
		term := fmt.Sprintf("%s == %q", attribute("type"), u.Type)
		if u.Profile != "" {
			term += fmt.Sprintf(" && %s == %q", attribute("profile"), u.Profile)
		}
		if u.ShareName != "" {
			term += fmt.Sprintf(" && %s == %q", attribute("shareName"), u.ShareName)
		}
		if u.Type == typeMIG && (slices.Contains(apart, u.Profile) || slices.Contains(apart, "")) {
			relation := "=="
			if u.Shared {
				relation = ">"
			}
			// MIG devices that are made for a claim have no such attribute: they are for one claim.
			term += fmt.Sprintf(" && %s.orValue(1) %s 1", attribute("?replicas"), relation)
		}
		if !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	all := strings.Join(terms, ") || (")
	if len(terms) > 1 {
		all = "((" + all + "))"
	}
	return fmt.Sprintf("device.driver == %q && %s", driver, all)
}

// compare orders uses, so that the same ones come to the same text.
func compare(a, b use) int {
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.ShareName, b.ShareName),
		cmp.Compare(flag(a.Shared), flag(b.Shared)), cmp.Compare(flag(a.OnlyOne), flag(b.OnlyOne)))
}
