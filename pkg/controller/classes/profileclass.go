package classes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// annotationProfile holds, as JSON, the origin of the DeviceClass of a MIG profile.
const annotationProfile = "prism.dev/mig-profile"

// maxPlainProfile is the maximum length of a profile in the name of its DeviceClass; longer ones are hashed.
const maxPlainProfile = 32

// maxPublished limits the published profiles that get resource names and DeviceClasses. All NVIDIA GPUs together support about 40; a
// compromised node can publish any number, and their DeviceClasses are never deleted.
const maxPublished = 64

// plainProfile matches 1g.10gb, 1g.10gb+me, 1g.24gb+me.all, 1g.24gb-me: at most one suffix, so that different profiles get different
// DeviceClass names.
var plainProfile = regexp.MustCompile(`^[1-9][0-9]?g\.[0-9]{1,4}gb([+-][a-z]+(\.[a-z]+)*)?$`)

// ProfileClass returns the name of the DeviceClass of a MIG profile and the CEL expression of its only selector, with all conditions, so
// that the scheduler evaluates one expression per device, instead of one of the DeviceClass and one of the request. Different profiles get
// different names: mig-1g-10gb.<driver>, mig-1g-24gb-me.<driver> for 1g.24gb+me, mig-1g-24gb-no-me.<driver> for 1g.24gb-me, and a hash if
// such a name could belong to another profile. The chart's template prism.mig.class returns the same names.
func ProfileClass(driver, profile string) (name, selector string) {
	selector = expression(driver, []use{{Type: gpu.TypeMIG, Profile: profile}}, nil)
	if len(profile) <= maxPlainProfile && plainProfile.MatchString(profile) && !strings.Contains(profile+".", "+no.") {
		return "mig-" + strings.NewReplacer(".", "-", "+", "-", "-", "-no-").Replace(profile) + "." + driver, selector
	}
	const short = 8
	sum := sha256.Sum256([]byte(profile))
	return "mig-profile-" + hex.EncodeToString(sum[:short]) + "." + driver, selector
}

// origin is the reason why the DeviceClass of a MIG profile exists.
type origin struct {
	Profile string `json:"profile"`
	// Entries of the ConfigMap that name the profile, sorted.
	Entries []string `json:"entries,omitempty"`
	// Published: a node has published MIG devices of the profile. The DeviceClass stays when the last such node is removed, because pods
	// that wait for a device may trigger a scale-up.
	Published bool `json:"published,omitempty"`
}

// originOf returns the origin of the DeviceClass of a MIG profile; nil for another DeviceClass.
func originOf(class *resourceapi.DeviceClass) *origin {
	o := &origin{}
	if err := json.Unmarshal([]byte(class.Annotations[annotationProfile]), o); err != nil || o.Profile == "" {
		return nil
	}
	return o
}

// profilesOf lists the MIG profiles in a configuration.
func profilesOf(c *v1alpha1.NodeConfig) []string {
	var named []string
	for i := range c.GPUs {
		if mig := c.GPUs[i].MIG; mig != nil {
			named = append(named, mig.Profiles...)
			named = slices.AppendSeq(named, maps.Keys(mig.Replicas))
		}
	}
	return slices.DeleteFunc(named, func(profile string) bool { return profile == v1alpha1.AllProfiles })
}

// profile returns the origin of a profile's DeviceClass, which is planned from then on.
func (p *planner) profile(profile string) *origin {
	if p.profiles[profile] == nil {
		p.profiles[profile] = &origin{Profile: profile}
	}
	return p.profiles[profile]
}

// wantProfiles adds an entry of the ConfigMap to the origins of these profiles.
func (p *planner) wantProfiles(key string, profiles ...string) {
	for _, profile := range profiles {
		if o := p.profile(profile); !slices.Contains(o.Entries, key) {
			o.Entries = append(o.Entries, key)
			slices.Sort(o.Entries)
		}
	}
}

// limitPublishedProfiles drops new profiles above maxPublished. Profiles with a DeviceClass keep it.
func (p *planner) limitPublishedProfiles() {
	known := map[string]bool{}
	for i := range p.Classes {
		if o := originOf(&p.Classes[i]); o != nil && o.Published && p.ours(&p.Classes[i]) {
			known[o.Profile] = true
		}
	}
	var bounded, over []string
	for _, profile := range p.Profiles {
		if !known[profile] && len(known) >= maxPublished {
			over = append(over, profile)
			continue
		}
		known[profile] = true
		bounded = append(bounded, profile)
	}
	p.Profiles = bounded
	if len(over) > 0 {
		p.problem(ReasonTooManyMIGProfiles, "Nodes publish MIG devices of %d profiles beyond the limit of %d DeviceClasses, such as %q; find the node with such "+
			"devices in its ResourceSlices of driver %s", len(over), maxPublished, over[0], p.Driver)
	}
}

// usePublishedProfiles adds the profiles that nodes publish or have published.
func (p *planner) usePublishedProfiles() {
	for _, profile := range p.Profiles {
		p.profile(profile).Published = true
	}
	for i := range p.Classes {
		if o := originOf(&p.Classes[i]); o != nil && o.Published && p.ours(&p.Classes[i]) {
			p.profile(o.Profile).Published = true
		}
	}
}

// keepRecordedProfiles adds the recorded profiles of an invalid entry.
func (p *planner) keepRecordedProfiles(key string) {
	for i := range p.Classes {
		if o := originOf(&p.Classes[i]); o != nil && slices.Contains(o.Entries, key) && p.ours(&p.Classes[i]) {
			p.wantProfiles(key, o.Profile)
		}
	}
}

// unmanagedClass returns the unmanaged DeviceClass of that name, nil without one.
func (p *planner) unmanagedClass(name string) *resourceapi.DeviceClass {
	i := slices.IndexFunc(p.Classes, func(c resourceapi.DeviceClass) bool { return c.Name == name && !p.ours(&c) })
	if i < 0 {
		return nil
	}
	return &p.Classes[i]
}

// classFor returns the name of the DeviceClass of a resource name: the class of a MIG profile if it selects the same devices, otherwise a
// separate class.
func (p *planner) classFor(resource, selector string) (name, profile string) {
	for _, u := range p.usesOf(resource) {
		class, same := ProfileClass(p.Driver, u.Profile)
		if u.Profile != "" && resource == migResource(u.Profile) && selector == same && p.unmanagedClass(class) == nil {
			return class, u.Profile
		}
	}
	return className(resource, p.Driver), ""
}

// profileClasses plans the DeviceClasses of MIG profiles. The plan already contains classes with a resource name.
func (p *planner) profileClasses() error {
	for _, profile := range slices.Sorted(maps.Keys(p.profiles)) {
		name, selector := ProfileClass(p.Driver, profile)
		if other := p.unmanagedClass(name); other != nil {
			if !hasOnlySelector(other, selector) {
				p.problemOf(name, ReasonDeviceClassNameTaken, "DeviceClass %s is not managed by the controller: requests with it get the devices that it selects, not MIG devices of "+
					"profile %s; delete it, and the controller creates its own", name, profile)
			}
			continue
		}
		text, err := json.Marshal(p.profiles[profile])
		if err != nil {
			return fmt.Errorf("encoding the origin of the DeviceClass of MIG profile %s: %w", profile, err)
		}
		i := slices.IndexFunc(p.plan.Classes, func(c *resourceapi.DeviceClass) bool { return c.Name == name })
		if i < 0 {
			i = len(p.plan.Classes)
			p.plan.Classes = append(p.plan.Classes, newUnnamedClass(p.Driver, name, selector))
		}
		p.plan.Classes[i].Annotations[annotationProfile] = string(text)
	}
	return nil
}
