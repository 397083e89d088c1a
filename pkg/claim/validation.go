package claim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// Validator checks the opaque configuration of claims and classes when they are written, before anything is allocated. Resolve refuses
// the same configuration, except class settings without effect for claims with admin access. Checks that depend on the allocated device
// are left to Resolve.
type Validator struct {
	// Driver is this driver's name. Configuration for other drivers is left out.
	Driver string
	// Class returns a DeviceClass, nil for one that is not known. It may be nil.
	Class func(name string) *resourceapi.DeviceClass
	// Families and Extensions check the configuration; nil: all of this package.
	Families   []DevicePlanner
	Extensions []PlanExtension
}

// source reads configuration as it is read when a claim is prepared.
func (v Validator) source() Source {
	return Source{Driver: v.Driver, Families: v.Families, Extensions: v.Extensions}
}

// check returns the function that checks the configurations of one object.
func (v Validator) check() func(read option) error {
	source, checks := v.source(), map[string]func(v1alpha1.Config) error{}
	return func(read option) error {
		extension, ok := source.configured(read.config).(Checking)
		if !ok {
			return nil
		}
		if checks[extension.Kind()] == nil {
			checks[extension.Kind()] = extension.Check()
		}
		return checks[extension.Kind()](read.config)
	}
}

// Claim checks the configuration in the spec of a claim or of a template. path leads to that spec in the object: "spec", "spec.spec". The
// error joins all problems, each with its path and request.
func (v Validator) Claim(path string, spec *resourceapi.ResourceClaimSpec) error {
	requests, check := v.requests(spec.Devices.Requests), v.check()
	var problems []error
	for i := range spec.Devices.Config {
		config := &spec.Devices.Config[i]
		if config.Opaque == nil || config.Opaque.Driver != v.Driver {
			continue
		}
		at := fmt.Sprintf("%s.devices.config[%d].opaque.parameters", path, i)
		for _, problem := range v.claimConfig(config, requests, check) {
			problems = append(problems, fmt.Errorf("%s: %w", at, problem))
		}
	}
	if len(problems) == 0 {
		for _, problem := range eachRequest(requests, func(r asked) error { return v.refusesRequest(r, spec.Devices.Config) }) {
			problems = append(problems, fmt.Errorf("%s.devices.requests: %w", path, problem))
		}
	}
	if len(problems) == 0 {
		for _, problem := range v.refusesCounters(requests, spec.Devices.Config) {
			problems = append(problems, fmt.Errorf("%s.devices.requests: %w", path, problem))
		}
	}
	return errors.Join(problems...)
}

// DeviceClass checks the configuration in the spec of a class of that name. The error has the form of Claim's errors.
func (v Validator) DeviceClass(name string, spec *resourceapi.DeviceClassSpec) error {
	var problems []error
	check := v.check()
	for i := range spec.Config {
		opaque := spec.Config[i].Opaque
		if opaque == nil || opaque.Driver != v.Driver {
			continue
		}
		read, err := v.source().read(opaque.Parameters.Raw)
		if err == nil {
			err = errors.Join(v.source().unsupported(read, v.familyOf(name)), check(read))
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("spec.config[%d].opaque.parameters: %w", i, err))
		}
	}
	return errors.Join(problems...)
}

// asked is a request, or one of the alternatives of a request.
type asked struct {
	// name is "<request>" or "<request>/<alternative>", parent the request's.
	name, parent string
	class        string
	// family is the family of the class's devices, nil if it is not known.
	family DevicePlanner
	admin  bool
	// count is how many devices it is for, 0 for all that there are.
	count    int64
	capacity *resourceapi.CapacityRequirements
}

// in reports whether a list of requests has it; without a list all are meant.
func (r asked) in(listed []string) bool {
	return len(listed) == 0 || slices.Contains(listed, r.name) || slices.Contains(listed, r.parent)
}

// requests lists the requests, in the order of the spec.
func (v Validator) requests(requests []resourceapi.DeviceRequest) []asked {
	var all []asked
	for i := range requests {
		r := &requests[i]
		if e := r.Exactly; e != nil {
			all = append(all, asked{
				name: r.Name, parent: r.Name, class: e.DeviceClassName, family: v.familyOf(e.DeviceClassName), capacity: v.capacity(e.Capacity),
				admin: e.AdminAccess != nil && *e.AdminAccess, count: countOf(e.AllocationMode, e.Count),
			})
		}
		for _, sub := range r.FirstAvailable {
			all = append(all, asked{
				name: r.Name + "/" + sub.Name, parent: r.Name, class: sub.DeviceClassName, family: v.familyOf(sub.DeviceClassName),
				capacity: v.capacity(sub.Capacity), count: countOf(sub.AllocationMode, sub.Count),
			})
		}
	}
	return all
}

// capacity is the requested capacity, by names without the driver's domain; nil for nil.
func (v Validator) capacity(c *resourceapi.CapacityRequirements) *resourceapi.CapacityRequirements {
	if c == nil {
		return nil
	}
	return &resourceapi.CapacityRequirements{Requests: unqualified(c.Requests, v.Driver)}
}

// countOf is how many devices a request is for, 0 for all that there are. Kubernetes sets both fields before a claim is checked, and not
// in a template.
func countOf(mode resourceapi.DeviceAllocationMode, count int64) int64 {
	if mode == resourceapi.DeviceAllocationModeAll {
		return 0
	}
	return max(count, 1)
}

// familyOf is the family of the devices of a class that has one of the names that the driver's classes have, else nil.
func (v Validator) familyOf(class string) DevicePlanner {
	for _, family := range v.source().families() {
		if family.HasClass(class, v.Driver) {
			return family
		}
	}
	return nil
}

// claimConfig checks one configuration for all requests that it is for. Of alternatives one that can have it is enough.
func (v Validator) claimConfig(config *resourceapi.DeviceClaimConfiguration, requests []asked, check func(option) error) []error {
	read, err := v.source().read(config.Opaque.Parameters.Raw)
	if err == nil {
		err = check(read)
	}
	if err != nil {
		return []error{about(strings.Join(config.Requests, ", "), err)}
	}
	return eachRequest(slices.DeleteFunc(slices.Clone(requests), func(r asked) bool { return !r.in(config.Requests) }), func(r asked) error {
		return v.refuses(r, read, len(config.Requests) == 0)
	})
}

// about says which request an error is about; none for all.
func about(name string, err error) error {
	if name == "" {
		return err
	}
	return fmt.Errorf("request %q: %w", name, err)
}

// eachRequest checks every request, in the order of the spec. Of alternatives one that passes is enough.
func eachRequest(requests []asked, check func(asked) error) []error {
	refused, possible := map[string]error{}, map[string]bool{}
	var order []string
	for _, r := range requests {
		if !slices.Contains(order, r.parent) {
			order = append(order, r.parent)
		}
		switch err := check(r); {
		case err == nil:
			possible[r.parent] = true
		case refused[r.parent] == nil:
			refused[r.parent] = about(r.name, err)
		}
	}
	var problems []error
	for _, name := range order {
		if !possible[name] {
			problems = append(problems, refused[name])
		}
	}
	return problems
}

// refusesRequest says why a request cannot be fulfilled with all configuration of its class and its claim.
func (v Validator) refusesRequest(r asked, configs []resourceapi.DeviceClaimConfiguration) error {
	if family, ok := r.family.(Requests); ok {
		if err := family.Asked(r.count, r.admin, r.capacity); err != nil {
			return err
		}
	}
	if err := v.refusesShares(r); err != nil {
		return err
	}
	if r.admin {
		return nil
	}
	merged, err := v.options(r, configs)
	if err != nil {
		return err
	}
	own := func() (Options, error) {
		alone := v
		alone.Class = nil
		return alone.options(r, configs)
	}
	var problems []error
	for _, extension := range v.source().extensions() {
		if e, ok := extension.(Validating); ok {
			problems = append(problems, e.Validate(merged, own, r.count))
		}
	}
	return errors.Join(problems...)
}

// options are the settings of a request's class, and over them the settings of its claim. Unreadable configuration is left out.
func (v Validator) options(r asked, configs []resourceapi.DeviceClaimConfiguration) (Options, error) {
	merged := v.ofClass(r.class)
	for i := range configs {
		config := &configs[i]
		if config.Opaque == nil || config.Opaque.Driver != v.Driver || !r.in(config.Requests) {
			continue
		}
		read, err := v.source().read(config.Opaque.Parameters.Raw)
		if err != nil || len(config.Requests) == 0 && r.family != nil && !read.covers(r.family.Type()) {
			continue
		}
		if merged, err = v.source().with(merged, read.config, v1alpha1.FromClaim); err != nil {
			return merged, err
		}
	}
	return merged, nil
}

// refuses says why a configuration of its claim does not suit a request, as a result is refused when a claim is prepared.
func (v Validator) refuses(r asked, read option, forAll bool) error {
	if forAll && r.family != nil && !read.covers(r.family.Type()) {
		return nil // it applies to all requests of its type
	}
	source := v.source()
	if err := source.unsupported(read, r.family); err != nil {
		return err
	}
	claimed, err := source.with(Options{}, read.config, v1alpha1.FromClaim)
	if err == nil && r.admin {
		err = source.forbidden(claimed)
	}
	if err != nil {
		return err
	}
	_, err = source.with(v.ofClass(r.class), read.config, v1alpha1.FromClaim)
	return err
}

// ofClass returns the settings of a class; nothing if the class is not known or wrong itself.
func (v Validator) ofClass(name string) Options {
	var merged Options
	if v.Class == nil {
		return merged
	}
	class := v.Class(name)
	if class == nil {
		return merged
	}
	for i := range class.Spec.Config {
		opaque := class.Spec.Config[i].Opaque
		if opaque == nil || opaque.Driver != v.Driver {
			continue
		}
		read, err := v.source().read(opaque.Parameters.Raw)
		if err != nil {
			continue
		}
		if both, err := v.source().with(merged, read.config, v1alpha1.FromClass); err == nil {
			merged = both
		}
	}
	return merged
}
