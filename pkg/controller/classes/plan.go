package classes

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
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

// Reasons of problems, in Events and metrics.
const (
	// ReasonNodeConfigInvalid: an entry is invalid; its last valid content stays in effect.
	ReasonNodeConfigInvalid = events.NodeConfigInvalid
	// ReasonDeviceClassNameTaken: an unmanaged object uses the name.
	ReasonDeviceClassNameTaken = events.DeviceClassNameTaken
	// ReasonExtendedResourcesOverlap: several resource names request the same devices.
	ReasonExtendedResourcesOverlap = events.ExtendedResourcesOverlap
	// ReasonDevicePluginCapacity: a device plugin provides nvidia.com/gpu on a node.
	ReasonDevicePluginCapacity = events.DevicePluginCapacity
	// ReasonExtendedResourcesUnsupported: the API server drops the resource names of DeviceClasses.
	ReasonExtendedResourcesUnsupported = events.ExtendedResourcesUnsupported
	// ReasonTooManyMIGProfiles: nodes publish more MIG profiles than the limit for DeviceClasses.
	ReasonTooManyMIGProfiles = events.TooManyMIGProfiles
)

// Reasons are the reasons of all problems.
var Reasons = []string{ReasonNodeConfigInvalid, ReasonDeviceClassNameTaken, ReasonExtendedResourcesOverlap, ReasonDevicePluginCapacity, ReasonExtendedResourcesUnsupported, ReasonTooManyMIGProfiles}

// Problem is a problem that an operator must fix. It does not affect the rest of the plan.
type Problem struct {
	Reason string
	// Note is one sentence: the cause, the effect and the fix.
	Note string
	// Class and Node name the object that the problem is about besides the configuration; empty: none.
	Class, Node string
}

// Input is the input of NewPlan.
type Input struct {
	// Driver is the DRA driver's name.
	Driver string
	// OwnerRole is the ClusterRole that owns the objects; empty for none.
	OwnerRole string
	// Configs are the entries of the ConfigMap. All of them are used, because nodes may select any.
	Configs map[string]string
	// Classes are all existing DeviceClasses, managed or not.
	Classes []resourceapi.DeviceClass
	// Former are the managed DeviceClasses of earlier driver names of the release, with these names. Plans contain none of them.
	Former map[string]string
	// Profiles are the profiles of the MIG devices that nodes publish.
	Profiles []string
	// GPUResource determines whether whole GPUs get the name nvidia.com/gpu.
	GPUResource GPUResource
	// Capacity is the capacity of nvidia.com/gpu from device plugins. It is used for GPUResourceAuto only.
	Capacity Capacity
}

// Plan is the desired state. Managed objects that are not in it are deleted.
type Plan struct {
	// Classes contains first the classes with a resource name, in the order of these names, then the others. Written in this order, a name
	// that moves to another DeviceClass is added there before it is removed from the old one.
	Classes []*resourceapi.DeviceClass
	// Unconfigured are the resource names that no entry of the ConfigMap uses.
	Unconfigured map[string]bool
	// Policy and Binding are nil if no requests are denied.
	Policy   *admissionapi.ValidatingAdmissionPolicy
	Binding  *admissionapi.ValidatingAdmissionPolicyBinding
	Problems []Problem
}

// NewPlan computes the DeviceClasses and the policy. An error is a bug of this program.
func NewPlan(in Input) (*Plan, error) {
	p := &planner{Input: in, plan: &Plan{Unconfigured: map[string]bool{}}, wanted: map[string]names{}, strategies: map[v1alpha1.MIGStrategy]string{},
		profiles: map[string]*origin{}}
	p.limitPublishedProfiles()
	if in.GPUResource != GPUResourceNever {
		p.wanted[wholeGPU] = names{}
	}
	p.usePublishedProfiles()
	for _, key := range slices.Sorted(maps.Keys(in.Configs)) {
		p.read(key)
	}
	p.checkStrategies()
	p.checkOverlaps()
	var single []string
	for _, resource := range slices.Sorted(maps.Keys(p.wanted)) {
		planned, err := p.class(resource)
		if err != nil {
			return nil, err
		}
		if planned && p.refusesSeveral(resource) {
			single = append(single, resource)
		}
	}
	if err := p.profileClasses(); err != nil {
		return nil, err
	}
	p.plan.Policy, p.plan.Binding = newPolicy(PolicyName(in.OwnerRole, in.Driver), in.Driver, single)
	return p.plan, nil
}

// planner is the state of NewPlan.
type planner struct {
	Input
	plan *Plan
	// wanted are the uses by resource name and entry of the ConfigMap.
	wanted map[string]names
	// strategies are the MIG strategies, each with one of its entries.
	strategies map[v1alpha1.MIGStrategy]string
	// profiles are the MIG profiles with a DeviceClass of their own.
	profiles map[string]*origin
}

func (p *planner) problem(reason, format string, args ...any) {
	p.plan.Problems = append(p.plan.Problems, Problem{Reason: reason, Note: fmt.Sprintf(format, args...)})
}

// problemOf is a problem of a DeviceClass.
func (p *planner) problemOf(class, reason, format string, args ...any) {
	p.plan.Problems = append(p.plan.Problems, Problem{Reason: reason, Note: fmt.Sprintf(format, args...), Class: class})
}

// problemOn is the problem that a device plugin provides capacity on a node.
func (p *planner) problemOn(node, format string, args ...any) {
	p.plan.Problems = append(p.plan.Problems, Problem{Reason: ReasonDevicePluginCapacity, Note: fmt.Sprintf(format, args...), Node: node})
}

func (p *planner) want(resource, key string, uses ...use) {
	if p.wanted[resource] == nil {
		p.wanted[resource] = names{}
	}
	for _, u := range uses {
		p.wanted[resource].add(key, u)
	}
	slices.SortFunc(p.wanted[resource][key], compare)
}

// read adds the names and profiles of one entry. For an invalid entry, the recorded ones stay.
func (p *planner) read(key string) {
	config, _, err := nodeconfig.Parse([]byte(p.Configs[key]), "entry "+key)
	if err != nil {
		p.problem(ReasonNodeConfigInvalid, "Node configuration is invalid: %v; its extended resource names are unchanged", err)
		p.keepRecordedProfiles(key)
		p.useRecorded(key, func(use) bool { return true })
		return
	}
	for resource, uses := range namesOf(config) {
		p.want(resource, key, uses...)
	}
	p.wantProfiles(key, profilesOf(config)...)
	strategy := *config.Flags.MIGStrategy
	if _, found := p.strategies[strategy]; !found {
		p.strategies[strategy] = key
	}
	if strategy != v1alpha1.MIGStrategyMixed {
		return
	}
	for _, profile := range p.Profiles {
		p.want(migResource(profile), key, use{Type: gpu.TypeMIG, Profile: profile})
	}
	// A name stays when the last node with such MIG devices is removed: pods that wait for it may trigger a scale-up.
	p.useRecorded(key, func(u use) bool { return u.Type == gpu.TypeMIG && u.Profile != "" && !u.Shared })
}

// useRecorded adds the uses of an entry that are recorded in DeviceClasses.
func (p *planner) useRecorded(key string, which func(use) bool) {
	for i := range p.Classes {
		class := &p.Classes[i]
		if !p.ours(class) || resourceOf(class) == "" {
			continue
		}
		for _, u := range recordedUses(class, key) {
			if which(u) {
				p.want(resourceOf(class), key, u)
			}
		}
	}
}

// usesOf returns the uses of a name by all entries, sorted. Whole GPUs use their name independently of the entries.
func (p *planner) usesOf(resource string) []use {
	var all []use
	if resource == wholeGPU && p.GPUResource != GPUResourceNever {
		all = append(all, use{Type: gpu.TypeGPU})
	}
	for _, uses := range p.wanted[resource] {
		all = append(all, uses...)
	}
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}

// separated lists the profiles whose shared MIG devices have another resource name than the exclusive ones.
func (p *planner) separated() []string {
	var profiles []string
	for resource := range p.wanted {
		for _, u := range p.usesOf(resource) {
			if u.Shared && resource != migResource(u.Profile) {
				profiles = append(profiles, u.Profile)
			}
		}
	}
	return profiles
}

// class plans the DeviceClass of a resource name, unless an unmanaged DeviceClass conflicts with it. An existing one is kept beside an
// unmanaged one: a scheduler drops a name when one of two DeviceClasses with it is deleted (see renewal).
func (p *planner) class(resource string) (planned bool, err error) {
	selector := expression(p.Driver, p.usesOf(resource), p.separated())
	name, profile := p.classFor(resource, selector)
	managed := p.hasClassFor(resource)
	for i := range p.Classes {
		other := &p.Classes[i]
		switch {
		case p.ours(other):
			continue
		case resourceOf(other) == resource && hasOnlySelector(other, selector):
			// It is equivalent, so there is nothing to report.
		case resourceOf(other) == resource:
			p.problemOf(other.Name, ReasonDeviceClassNameTaken, "%s is the extended resource name of DeviceClass %s, which the controller does not manage: requests get the devices of the "+
				"newest DeviceClass of that name, not %s; remove its extendedResourceName, or the name from the node configuration", resource, other.Name, selector)
		case other.Name == name:
			p.problemOf(name, ReasonDeviceClassNameTaken, "DeviceClass %s is not managed by the controller, so %s cannot be requested; delete it, or remove the name from the node "+
				"configuration", name, resource)
		default:
			continue
		}
		if !managed {
			return false, nil
		}
	}
	if resource == wholeGPU && p.leftToDevicePlugin(managed) {
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
	p.plan.Unconfigured[resource] = len(p.wanted[resource]) == 0
	p.plan.Classes = append(p.plan.Classes, class)
	return true, nil
}

// hasClassFor reports whether there is a managed DeviceClass for a resource name, also if the API server has dropped the name.
func (p *planner) hasClassFor(resource string) bool {
	return slices.ContainsFunc(p.Classes, func(c resourceapi.DeviceClass) bool {
		return (c.Name == className(resource, p.Driver) || resourceOf(&c) == resource) && p.ours(&c)
	})
}

// refusesSeveral reports whether no use of a name allows requests for several devices. If some do, only the node can decide.
func (p *planner) refusesSeveral(resource string) bool {
	return !slices.ContainsFunc(p.usesOf(resource), func(u use) bool { return !u.OnlyOne })
}

// checkStrategies reports entries with different MIG strategies, because resource names apply to all nodes.
func (p *planner) checkStrategies() {
	single, found := p.strategies[v1alpha1.MIGStrategySingle]
	if !found || len(p.strategies) == 1 {
		return
	}
	for _, other := range []v1alpha1.MIGStrategy{v1alpha1.MIGStrategyMixed, v1alpha1.MIGStrategyNone} {
		if key, ok := p.strategies[other]; ok {
			p.problem(ReasonExtendedResourcesOverlap, "flags.migStrategy is single in entry %s and %s in entry %s: an extended resource name selects the same devices on "+
				"all nodes, so %s requests MIG devices of nodes with the other entry too; use one strategy", single, other, key, wholeGPU)
			return
		}
	}
}

// checkOverlaps reports shares with several resource names, because each of the names requests all of these shares.
func (p *planner) checkOverlaps() {
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
			devices := fmt.Sprintf("shares of type %s with shareName %s", u.Type, u.ShareName)
			if u.Shared {
				devices = "shared MIG devices of profile " + cmp.Or(u.Profile, "any")
			}
			p.problem(ReasonExtendedResourcesOverlap, "Extended resources %s request the same %s: set different shareNames, or one resource name",
				strings.Join(list, ", "), devices)
		}
	}
}
