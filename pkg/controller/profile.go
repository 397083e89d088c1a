package controller

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
)

// annotationProfile holds, as JSON, the MIG profile that a class is for, and why the class exists.
const annotationProfile = "prism.dev/mig-profile"

// maxPlainProfile is the length in bytes of the longest profile whose class is named after it.
const maxPlainProfile = 32

// maxPublished is how many published profiles get names and classes. NVIDIA's GPUs have some 40 together; a node that is not what it
// should be can publish any number, and a class that was made stays.
const maxPublished = 64

// plainProfile covers 1g.10gb, 1g.10gb+me, 1g.24gb+me.all, 1g.24gb-me: at most one suffix, so that the class names differ where the
// profiles do.
var plainProfile = regexp.MustCompile(`^[1-9][0-9]?g\.[0-9]{1,4}gb([+-][a-z]+(\.[a-z]+)*)?$`)

// ProfileClass returns the name of the DeviceClass of a MIG profile and the CEL expression of its one selector, which has all conditions:
// the scheduler then evaluates one expression for a device, where a class and a selector in the request are two. Different profiles have
// different names: mig-1g-10gb.<driver>, mig-1g-24gb-me.<driver> for 1g.24gb+me, mig-1g-24gb-no-me.<driver> for 1g.24gb-me, and a
// hash where such a name could be that of another profile. The chart's template prism.mig.class gives the same names.
func ProfileClass(driver, profile string) (name, selector string) {
	selector = expression(driver, []use{{Type: typeMIG, Profile: profile}}, nil)
	if len(profile) <= maxPlainProfile && plainProfile.MatchString(profile) && !strings.Contains(profile+".", "+no.") {
		return "mig-" + strings.NewReplacer(".", "-", "+", "-", "-", "-no-").Replace(profile) + "." + driver, selector
	}
	const short = 8
	sum := sha256.Sum256([]byte(profile))
	return "mig-profile-" + hex.EncodeToString(sum[:short]) + "." + driver, selector
}

// origin says why the class of a MIG profile exists.
type origin struct {
	Profile string `json:"profile"`
	// Entries of the ConfigMap that name the profile, sorted.
	Entries []string `json:"entries,omitempty"`
	// Published: a node has published MIG devices of the profile. The class stays when the last such node goes, as pods that wait for a
	// device may bring one back.
	Published bool `json:"published,omitempty"`
}

// originOf reads why a class of the controller exists; nil for one that is for no profile.
func originOf(class *resourceapi.DeviceClass) *origin {
	o := &origin{}
	if err := json.Unmarshal([]byte(class.Annotations[annotationProfile]), o); err != nil || o.Profile == "" {
		return nil
	}
	return o
}

// profilesOf lists the MIG profiles that a configuration names.
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

// profile is the origin of a profile's class.
func (p *planning) profile(profile string) *origin {
	if p.profiles[profile] == nil {
		p.profiles[profile] = &origin{Profile: profile}
	}
	return p.profiles[profile]
}

// wantProfiles notes that an entry of the ConfigMap names these profiles.
func (p *planning) wantProfiles(key string, profiles ...string) {
	for _, profile := range profiles {
		if o := p.profile(profile); !slices.Contains(o.Entries, key) {
			o.Entries = append(o.Entries, key)
			slices.Sort(o.Entries)
		}
	}
}

// boundProfiles leaves out published profiles of which there are too many. Those that have a class keep it.
func (p *planning) boundProfiles() {
	known := map[string]bool{}
	for i := range p.Classes {
		if o := originOf(&p.Classes[i]); o != nil && o.Published && owned(&p.Classes[i], p.Driver) {
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
		p.note(ReasonTooManyMIGProfiles, "nodes publish MIG devices of %d profiles more than the %d that get a DeviceClass, such as %q: see which node has "+
			"ResourceSlices of driver %s with such devices", len(over), maxPublished, over[0], p.Driver)
	}
}

// published notes the profiles that nodes publish or have published.
func (p *planning) published() {
	for _, profile := range p.Profiles {
		p.profile(profile).Published = true
	}
	for i := range p.Classes {
		if o := originOf(&p.Classes[i]); o != nil && o.Published && owned(&p.Classes[i], p.Driver) {
			p.profile(o.Profile).Published = true
		}
	}
}

// stillNamed has an entry that cannot be read name the profiles that it named before.
func (p *planning) stillNamed(key string) {
	for i := range p.Classes {
		if o := originOf(&p.Classes[i]); o != nil && slices.Contains(o.Entries, key) && owned(&p.Classes[i], p.Driver) {
			p.wantProfiles(key, o.Profile)
		}
	}
}

// foreign returns the class of that name that is not the controller's, nil where there is none.
func (p *planning) foreign(name string) *resourceapi.DeviceClass {
	i := slices.IndexFunc(p.Classes, func(c resourceapi.DeviceClass) bool { return c.Name == name && !owned(&c, p.Driver) })
	if i < 0 {
		return nil
	}
	return &p.Classes[i]
}

// classFor is the name of the class that has a resource name: that of a profile's class where this selects the same devices, else one
// of the resource's own.
func (p *planning) classFor(resource, selector string) (name, profile string) {
	for _, u := range p.usesOf(resource) {
		class, same := ProfileClass(p.Driver, u.Profile)
		if u.Profile != "" && resource == sliceResource(u.Profile) && selector == same && p.foreign(class) == nil {
			return class, u.Profile
		}
	}
	return className(resource, p.Driver), ""
}

// profileClasses plans the classes of MIG profiles. Those that have a resource name are in the plan already.
func (p *planning) profileClasses() error {
	for _, profile := range slices.Sorted(maps.Keys(p.profiles)) {
		name, selector := ProfileClass(p.Driver, profile)
		if other := p.foreign(name); other != nil {
			if !selectsAs(other, selector) {
				p.note(ReasonDeviceClassNameTaken, "there is a DeviceClass %s that is not the controller's: requests by this class get what it selects, not MIG devices "+
					"of profile %s; delete it, and the controller makes its own", name, profile)
			}
			continue
		}
		text, err := json.Marshal(p.profiles[profile])
		if err != nil {
			return fmt.Errorf("writing down why there is a class of MIG profile %s: %w", profile, err)
		}
		i := slices.IndexFunc(p.plan.Classes, func(c *resourceapi.DeviceClass) bool { return c.Name == name })
		if i < 0 {
			i = len(p.plan.Classes)
			p.plan.Classes = append(p.plan.Classes, bareClass(p.Driver, name, selector))
		}
		p.plan.Classes[i].Annotations[annotationProfile] = string(text)
	}
	return nil
}
