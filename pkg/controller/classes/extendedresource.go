package classes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	wholeGPU          = "nvidia.com/gpu"
	migResourcePrefix = "nvidia.com/mig-"
)

// use selects devices of an extended resource name. Empty fields match all.
type use struct {
	Type      gpu.DeviceType `json:"type"`
	Profile   string         `json:"profile,omitempty"`
	ShareName string         `json:"shareName,omitempty"`
	// Shared selects the MIG devices that several claims may use at once.
	Shared bool `json:"shared,omitempty"`
	// OnlyOne denies requests for more than one device.
	OnlyOne bool `json:"onlyOne,omitempty"`
}

// names are the uses by resource name.
type names map[string][]use

func (n names) add(resource string, u use) {
	if !slices.Contains(n[resource], u) {
		n[resource] = append(n[resource], u)
	}
}

// migResource is the resource name that NVIDIA's device plugin uses for MIG devices of a profile.
func migResource(profile string) string {
	return migResourcePrefix + strings.ReplaceAll(profile, "+", ".")
}

// namesOf returns the resource names of a configuration with defaults. The name of whole GPUs does not depend on it, and is not included.
func namesOf(c *v1alpha1.NodeConfig) names {
	n := names{}
	strategy := *c.Flags.MIGStrategy
	if strategy == v1alpha1.MIGStrategySingle {
		n.add(wholeGPU, use{Type: gpu.TypeMIG})
	}
	for i := range c.GPUs {
		entry := &c.GPUs[i]
		n.shares(entry)
		n.mig(entry, strategy)
	}
	return n
}

// shares adds names of shares of an entire GPU.
func (n names) shares(entry *v1alpha1.GPUEntry) {
	for _, m := range entry.SharedModes() {
		if m.ResourceName != nil {
			n.add(*m.ResourceName, use{
				Type: gpu.DeviceType(m.Mode), ShareName: shareName(m.ShareName), OnlyOne: m.OneShare || *entry.FailRequestsGreaterThanOne,
			})
		}
	}
}

func shareName(name *string) string {
	if name == nil {
		return gpu.NotApplicable
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
			n.add(migResource(profile), use{Type: gpu.TypeMIG, Profile: profile})
		}
	}
	for profile, replicas := range entry.MIG.Replicas {
		if profile == v1alpha1.AllProfiles {
			n.allMIGDevices(entry, strategy)
			continue
		}
		name, named := entry.MIG.ResourceNames[profile]
		// In a configuration of the device plugin, the strategy decides whether MIG devices get separate resource names.
		if named && len(entry.Origins) > 0 && !mixed {
			continue
		}
		if !named && mixed {
			name = migResource(profile)
		}
		if name != "" && replicas > 1 {
			n.add(name, use{Type: gpu.TypeMIG, Profile: profile, Shared: true, OnlyOne: *entry.FailRequestsGreaterThanOne})
		}
	}
}

// allMIGDevices adds the name of shared MIG devices of all profiles, unless it already selects them.
func (n names) allMIGDevices(entry *v1alpha1.GPUEntry, strategy v1alpha1.MIGStrategy) {
	name := entry.MIG.ResourceNames[v1alpha1.AllProfiles]
	if name == "" || name == wholeGPU && strategy == v1alpha1.MIGStrategySingle || entry.MIG.Replicas[v1alpha1.AllProfiles] < 2 {
		return
	}
	n.add(name, use{Type: gpu.TypeMIG, Shared: true, OnlyOne: *entry.FailRequestsGreaterThanOne})
}

// expression is the CEL expression that selects the devices of these uses. It begins with the driver, because the scheduler evaluates it on
// devices of other drivers too, which lack the attributes. For the profiles in separated ("" means all), exclusive and shared MIG devices
// use different resource names.
func expression(driver string, uses []use, separated []string) string {
	attribute := func(name string) string { return fmt.Sprintf("device.attributes[%q].%s", driver, name) }
	var terms []string
	for _, u := range uses {
		term := fmt.Sprintf("%s == %q", attribute(gpu.AttributeType), u.Type)
		if u.Profile != "" {
			term += fmt.Sprintf(" && %s == %q", attribute(gpu.AttributeProfile), u.Profile)
		}
		if u.ShareName != "" {
			term += fmt.Sprintf(" && %s == %q", attribute(gpu.AttributeShareName), u.ShareName)
		}
		if u.Type == gpu.TypeMIG && (slices.Contains(separated, u.Profile) || slices.Contains(separated, "")) {
			relation := "=="
			if u.Shared {
				relation = ">"
			}
			// MIG devices that are created for a claim lack the attribute: they are exclusive.
			term += fmt.Sprintf(" && %s.orValue(1) %s 1", attribute("?"+gpu.AttributeReplicas), relation)
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

// compare orders uses, so that the expression does not depend on their order.
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
