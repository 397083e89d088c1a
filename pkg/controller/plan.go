package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionapi "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

// Reasons of problems, as they stand in Events and metrics.
const (
	// ReasonNodeConfigInvalid: an entry cannot be read; what it gave before stays.
	ReasonNodeConfigInvalid = events.NodeConfigInvalid
	// ReasonDeviceClassNameTaken: somebody else's class has the name.
	ReasonDeviceClassNameTaken = events.DeviceClassNameTaken
	// ReasonExtendedResourcesOverlap: names request devices of each other.
	ReasonExtendedResourcesOverlap = events.ExtendedResourcesOverlap
	// ReasonDevicePluginCapacity: a node has nvidia.com/gpu from a device plugin.
	ReasonDevicePluginCapacity = events.DevicePluginCapacity
	// ReasonExtendedResourcesUnsupported: the API server does not keep names of classes.
	ReasonExtendedResourcesUnsupported = events.ExtendedResourcesUnsupported
	// ReasonTooManyMIGProfiles: nodes publish more MIG profiles than there are on all GPUs.
	ReasonTooManyMIGProfiles = events.TooManyMIGProfiles
)

// Reasons are all of them.
var Reasons = []string{ReasonNodeConfigInvalid, ReasonDeviceClassNameTaken, ReasonExtendedResourcesOverlap, ReasonDevicePluginCapacity, ReasonExtendedResourcesUnsupported, ReasonTooManyMIGProfiles}

// Problem is something that people have to mend. The rest goes on.
type Problem struct {
	Reason string
	// Note is one sentence for people.
	Note string
}

// Input is what a plan is made of.
type Input struct {
	// Driver is the DRA driver's name.
	Driver string
	// Configs are the texts of the ConfigMap. All of them count, as a node may use any.
	Configs map[string]string
	// Classes are all there are, of whomever.
	Classes []resourceapi.DeviceClass
	// Profiles are those of the MIG slices that nodes publish.
	Profiles []string
	// GPUResource says whether whole GPUs get the name nvidia.com/gpu.
	GPUResource GPUResource
	// Capacity is what nodes have of that from a device plugin. It counts for GPUResourceAuto alone.
	Capacity Capacity
}

// Plan is what there is to be. Objects of the controller that are not in it are to go.
type Plan struct {
	// Classes with a resource name in the order of these names, then those without: written in this order, a name that moves to another
	// class is there before it leaves the one that it had.
	Classes []*resourceapi.DeviceClass
	// Unasked are the resource names that no entry of the ConfigMap gives.
	Unasked map[string]bool
	// Policy and Binding are nil where no request is to be refused.
	Policy   *admissionapi.ValidatingAdmissionPolicy
	Binding  *admissionapi.ValidatingAdmissionPolicyBinding
	Problems []Problem
}

// NewPlan works out the classes and the policy. An error is a fault of this program.
func NewPlan(in Input) (*Plan, error) {
	p := &planning{Input: in, plan: &Plan{Unasked: map[string]bool{}}, wanted: map[string]names{}, strategies: map[v1alpha1.MIGStrategy]string{},
		profiles: map[string]*origin{}}
	p.boundProfiles()
	if in.GPUResource != GPUResourceNever {
		p.wanted[wholeGPU] = names{}
	}
	p.published()
	for _, key := range slices.Sorted(maps.Keys(in.Configs)) {
		p.read(key)
	}
	p.strategiesDiffer()
	p.overlaps()
	var single []string
	for _, resource := range slices.Sorted(maps.Keys(p.wanted)) {
		made, err := p.class(resource)
		if err != nil {
			return nil, err
		}
		if made && p.onlyOne(resource) {
			single = append(single, resource)
		}
	}
	if err := p.profileClasses(); err != nil {
		return nil, err
	}
	p.plan.Policy, p.plan.Binding = refusing(in.Driver, single)
	return p.plan, nil
}

// planning is a plan in the making.
type planning struct {
	Input
	plan *Plan
	// wanted are the uses by resource name and entry of the ConfigMap.
	wanted map[string]names
	// strategies are an entry that has each.
	strategies map[v1alpha1.MIGStrategy]string
	// profiles are the MIG profiles that have a class of their own.
	profiles map[string]*origin
}

func (p *planning) note(reason, format string, args ...any) {
	p.plan.Problems = append(p.plan.Problems, Problem{Reason: reason, Note: fmt.Sprintf(format, args...)})
}

func (p *planning) want(resource, key string, uses ...use) {
	if p.wanted[resource] == nil {
		p.wanted[resource] = names{}
	}
	for _, u := range uses {
		p.wanted[resource].add(key, u)
	}
	slices.SortFunc(p.wanted[resource][key], compare)
}

// read takes over what one entry gives. What cannot be read gives what it gave before.
func (p *planning) read(key string) {
	config, _, err := nodeconfig.Parse([]byte(p.Configs[key]), "entry "+key)
	if err != nil {
		p.note(ReasonNodeConfigInvalid, "%v; its resource names stay as they were", err)
		p.stillNamed(key)
		p.remember(key, func(use) bool { return true })
		return
	}
	for resource, uses := range namesOf(config) {
		p.want(resource, key, uses...)
	}
	p.wantProfiles(key, profilesOf(config)...)
	strategy := *config.Flags.MIGStrategy
	if _, told := p.strategies[strategy]; !told {
		p.strategies[strategy] = key
	}
	if strategy != v1alpha1.MIGStrategyMixed {
		return
	}
	for _, profile := range p.Profiles {
		p.want(sliceResource(profile), key, use{Type: typeMIG, Profile: profile})
	}
	// A name stays when the last node that has such slices goes: pods that wait for it may bring one back.
	p.remember(key, func(u use) bool { return u.Type == typeMIG && u.Profile != "" && !u.Shared })
}

// remember takes over what an entry wanted of the classes there are.
func (p *planning) remember(key string, which func(use) bool) {
	for i := range p.Classes {
		class := &p.Classes[i]
		if !owned(class, p.Driver) || resourceOf(class) == "" {
			continue
		}
		for _, u := range remembered(class, key) {
			if which(u) {
				p.want(resourceOf(class), key, u)
			}
		}
	}
}

// usesOf joins what all entries want of a name, in one order. Whole GPUs have theirs whatever the entries say.
func (p *planning) usesOf(resource string) []use {
	var all []use
	if resource == wholeGPU && p.GPUResource != GPUResourceNever {
		all = append(all, use{Type: typeGPU})
	}
	for _, uses := range p.wanted[resource] {
		all = append(all, uses...)
	}
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}

// apart lists the profiles whose shared slices have another name than the exclusive ones.
func (p *planning) apart() []string {
	var profiles []string
	for resource := range p.wanted {
		for _, u := range p.usesOf(resource) {
			if u.Shared && resource != sliceResource(u.Profile) {
				profiles = append(profiles, u.Profile)
			}
		}
	}
	return profiles
}

// class plans the class of a name, unless somebody else's class is in the way. One that is there already stays beside that: a
// scheduler that sees one of two classes of a name go forgets the name (see renew).
func (p *planning) class(resource string) (made bool, err error) {
	selector := expression(p.Driver, p.usesOf(resource), p.apart())
	name, profile := p.classFor(resource, selector)
	ours := p.named(resource)
	for i := range p.Classes {
		other := &p.Classes[i]
		switch {
		case owned(other, p.Driver):
			continue
		case resourceOf(other) == resource && selectsAs(other, selector):
			// It is as good as ours.
		case resourceOf(other) == resource:
			p.note(ReasonDeviceClassNameTaken, "%s is the name of DeviceClass %s, which is not the controller's: requests get what the newest class of that name "+
				"selects, not %s; remove its extendedResourceName, or the name here", resource, other.Name, selector)
		case other.Name == name:
			p.note(ReasonDeviceClassNameTaken, "there is a DeviceClass %s that is not the controller's, so that %s cannot be requested; delete it, or "+
				"remove the name here", name, resource)
		default:
			continue
		}
		if !ours {
			return false, nil
		}
	}
	if resource == wholeGPU && p.leftToDevicePlugin(ours) {
		return false, nil
	}
	class, err := newClass(p.Driver, name, resource, selector, p.wanted[resource])
	if err != nil {
		return false, err
	}
	class.Spec.Config = p.configOf(resource)
	if profile != "" && p.profiles[profile] == nil {
		for key := range p.wanted[resource] {
			p.wantProfiles(key, profile)
		}
	}
	p.plan.Unasked[resource] = len(p.wanted[resource]) == 0
	p.plan.Classes = append(p.plan.Classes, class)
	return true, nil
}

// named tells whether a class of the controller has a resource name, or is the one that has it where the API server keeps names.
func (p *planning) named(resource string) bool {
	return slices.ContainsFunc(p.Classes, func(c resourceapi.DeviceClass) bool {
		return (c.Name == className(resource, p.Driver) || resourceOf(&c) == resource) && owned(&c, p.Driver)
	})
}

// onlyOne tells whether every use of a name refuses requests for several. Where one does not, only the node can tell.
func (p *planning) onlyOne(resource string) bool {
	return !slices.ContainsFunc(p.usesOf(resource), func(u use) bool { return !u.OnlyOne })
}

// strategiesDiffer tells that the names of slices are one for all nodes.
func (p *planning) strategiesDiffer() {
	single, found := p.strategies[v1alpha1.MIGStrategySingle]
	if !found || len(p.strategies) == 1 {
		return
	}
	for _, other := range []v1alpha1.MIGStrategy{v1alpha1.MIGStrategyMixed, v1alpha1.MIGStrategyNone} {
		if key, ok := p.strategies[other]; ok {
			p.note(ReasonExtendedResourcesOverlap, "flags.migStrategy is single in entry %s and %s in entry %s: a resource name means the same on all nodes, "+
				"so that %s requests slices of nodes with the other entry too; use one strategy", single, other, key, wholeGPU)
			return
		}
	}
}

// overlaps tells of shares that have several names, as each of these requests the shares of all.
func (p *planning) overlaps() {
	resources := map[use][]string{}
	for _, resource := range slices.Sorted(maps.Keys(p.wanted)) {
		for _, u := range p.usesOf(resource) {
			u.OnlyOne = false
			if (u.ShareName != "" || u.Shared) && !slices.Contains(resources[u], resource) {
				resources[u] = append(resources[u], resource)
			}
		}
	}
	for _, u := range slices.SortedFunc(maps.Keys(resources), compare) {
		if list := resources[u]; len(list) > 1 {
			what := fmt.Sprintf("shares of type %s with the share name %s", u.Type, u.ShareName)
			if u.Shared {
				what = "shared slices of profile " + cmp.Or(u.Profile, "any")
			}
			p.note(ReasonExtendedResourcesOverlap, "%s are requested by each of %s: give them share names of their own, or one resource name",
				what, strings.Join(list, ", "))
		}
	}
}
