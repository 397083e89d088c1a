package claim

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Written judges the opaque configuration of claims and classes when they are written, before anything is allocated: what it refuses,
// Resolve refuses too, but for what a class sets in vain for claims with admin access. What depends on the device that is allocated is
// left to Resolve.
type Written struct {
	// Driver is this driver's name. Configuration for others is none of its business.
	Driver string
	// Class returns a DeviceClass, nil for one that is not known. It may be nil.
	Class func(name string) *resourceapi.DeviceClass
}

// Claim judges the configuration in the spec of a claim or of a template. path leads to that spec in the object: "spec", "spec.spec".
// The error joins what is wrong, each with the path and the request that it is about.
func (w Written) Claim(path string, spec *resourceapi.ResourceClaimSpec) error {
	requests := w.requests(spec.Devices.Requests)
	var problems []error
	for i := range spec.Devices.Config {
		config := &spec.Devices.Config[i]
		if config.Opaque == nil || config.Opaque.Driver != w.Driver {
			continue
		}
		at := fmt.Sprintf("%s.devices.config[%d].opaque.parameters", path, i)
		for _, problem := range w.claimConfig(config, requests) {
			problems = append(problems, fmt.Errorf("%s: %w", at, problem))
		}
	}
	return errors.Join(problems...)
}

// DeviceClass judges the configuration in the spec of a class of that name. The error is as that of Claim.
func (w Written) DeviceClass(name string, spec *resourceapi.DeviceClassSpec) error {
	var problems []error
	for i := range spec.Config {
		opaque := spec.Config[i].Opaque
		if opaque == nil || opaque.Driver != w.Driver {
			continue
		}
		read, err := Source{Driver: w.Driver}.read(opaque.Parameters.Raw)
		if err == nil {
			err = read.unserved(w.typeOf(name))
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
	// device is the type of devices of the class, empty where it is not known.
	device gpu.DeviceType
	admin  bool
}

// in tells whether a list of requests has it; without a list all are meant.
func (r asked) in(listed []string) bool {
	return len(listed) == 0 || slices.Contains(listed, r.name) || slices.Contains(listed, r.parent)
}

// requests lists what is asked for, in the order of the spec.
func (w Written) requests(requests []resourceapi.DeviceRequest) []asked {
	var all []asked
	for i := range requests {
		r := &requests[i]
		if e := r.Exactly; e != nil {
			all = append(all, asked{
				name: r.Name, parent: r.Name, class: e.DeviceClassName, device: w.typeOf(e.DeviceClassName), admin: e.AdminAccess != nil && *e.AdminAccess,
			})
		}
		for _, sub := range r.FirstAvailable {
			all = append(all, asked{name: r.Name + "/" + sub.Name, parent: r.Name, class: sub.DeviceClassName, device: w.typeOf(sub.DeviceClassName)})
		}
	}
	return all
}

// profileClass is what precedes the driver's name in the name of the class of a MIG profile.
var profileClass = regexp.MustCompile(`^mig-[1-9][0-9]?g-[0-9]{1,4}gb(-[a-z]+)*$`)

// typeOf is the type of the devices of a class that has one of the names that the driver's classes have.
func (w Written) typeOf(class string) gpu.DeviceType {
	name, ours := strings.CutSuffix(class, "."+w.Driver)
	switch {
	case class == w.Driver:
		return gpu.TypeGPU
	case w.Driver == foreignDriver && class == "mig.nvidia.com": // as manifests for NVIDIA's driver call it
		return gpu.TypeMIG
	case ours && profileClass.MatchString(name):
		return gpu.TypeMIG
	}
	for _, device := range []gpu.DeviceType{gpu.TypeMIG, gpu.TypeTimeSlice, gpu.TypeMonitor} {
		if class == string(device)+"."+w.Driver {
			return device
		}
	}
	if class == "by-capacity."+w.Driver { // only MIG devices have the capacities that it needs
		return gpu.TypeMIG
	}
	return ""
}

// claimConfig judges one configuration for all requests that it is for. Of alternatives one that can have it is enough.
func (w Written) claimConfig(config *resourceapi.DeviceClaimConfiguration, requests []asked) []error {
	about := func(name string, err error) error {
		if name == "" {
			return err
		}
		return fmt.Errorf("request %q: %w", name, err)
	}
	read, err := Source{Driver: w.Driver}.read(config.Opaque.Parameters.Raw)
	if err != nil {
		return []error{about(strings.Join(config.Requests, ", "), err)}
	}
	refused, possible := map[string]error{}, map[string]bool{}
	var order []string
	for _, r := range requests {
		if !r.in(config.Requests) {
			continue
		}
		if !slices.Contains(order, r.parent) {
			order = append(order, r.parent)
		}
		switch err := w.refuses(r, read, len(config.Requests) == 0); {
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

// refuses says why a request cannot have a configuration of its claim, as options.apply and Plan.take do for a result.
func (w Written) refuses(r asked, read option, forAll bool) error {
	if forAll && !read.fits(r.device) {
		return nil // for those of its type among all
	}
	if err := read.unserved(r.device); err != nil {
		return err
	}
	config, ok := read.config.(*v1alpha1.GPUConfig)
	if !ok {
		return nil
	}
	if r.admin && setsInterval(config) {
		return errors.New(adminInterval)
	}
	_, err := v1alpha1.Merge(w.ofClass(r.class), config, v1alpha1.FromClaim)
	return err
}

// ofClass is what a class sets; nothing where the class is not known or wrong itself.
func (w Written) ofClass(name string) *v1alpha1.GPUConfig {
	merged := &v1alpha1.GPUConfig{}
	if w.Class == nil {
		return merged
	}
	class := w.Class(name)
	if class == nil {
		return merged
	}
	for i := range class.Spec.Config {
		opaque := class.Spec.Config[i].Opaque
		if opaque == nil || opaque.Driver != w.Driver {
			continue
		}
		read, err := Source{Driver: w.Driver}.read(opaque.Parameters.Raw)
		config, ok := read.config.(*v1alpha1.GPUConfig)
		if err != nil || !ok {
			continue
		}
		if both, err := v1alpha1.Merge(merged, config, v1alpha1.FromClass); err == nil {
			merged = both
		}
	}
	return merged
}
