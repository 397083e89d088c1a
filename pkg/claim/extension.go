package claim

import (
	"fmt"
	"maps"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// PlanExtension is the part of an extension that reads and plans claims: something that a claim may request besides its devices. Its optional
// parts are the interfaces below; an extension that does not implement one is skipped there. Its refusals are of type *Refusal.
type PlanExtension interface {
	// Kind is the key of the extension's data in plans and records, the same in every version.
	Kind() string
}

// Configured is a PlanExtension with opaque configuration of its own kind.
type Configured interface {
	PlanExtension
	// Reads reports whether a configuration is of the extension; the other methods get no others.
	Reads(config v1alpha1.Config) bool
	// Supports returns an error that names the parts of the configuration that devices of the type cannot have; an empty type stands for
	// any.
	Supports(config v1alpha1.Config, device gpu.DeviceType) error
	// Merge overlays the result of earlier merges, nil for none, with a configuration, into a new value.
	Merge(merged any, config v1alpha1.Config, from v1alpha1.Source) (any, error)
	// Forbidden returns why the merged configuration is forbidden for a claim with admin access; nil if it is allowed.
	Forbidden(merged any) error
}

// Decoding is a Configured extension whose kinds of configuration package v1alpha1 does not know.
type Decoding interface {
	Configured
	// Kinds returns an empty configuration for each kind.
	Kinds() map[string]func() v1alpha1.Config
}

// Defaulting is a Configured extension with defaults of the cluster.
type Defaulting interface {
	Configured
	// Defaults returns a function that overlays the class's configuration of a result with the cluster's defaults for a claim. The error
	// says why these cannot be decided now; Plan gets it.
	Defaults(rc *resourceapi.ResourceClaim) (overlay func(r *Result, merged any) (any, error), undecided error)
}

// Admitting is a PlanExtension that refuses claims before anything is planned for them.
type Admitting interface {
	PlanExtension
	// Admit gets the merged options of each result.
	Admit(p *Plan, options []Options) error
}

// ResultPlanning is a PlanExtension that plans each result by itself, before the steps of the devices.
type ResultPlanning interface {
	PlanExtension
	PlanResult(p *Plan, r *Result, options Options) error
}

// Planning is a PlanExtension that plans a claim as a whole, after the steps of the devices.
type Planning interface {
	PlanExtension
	// Plan gets the merged options of each result, and why the cluster's defaults are not known.
	Plan(p *Plan, rc *resourceapi.ResourceClaim, options []Options, undecided error) error
}

// Validating is a PlanExtension that checks a request's configuration as soon as its claim is written.
type Validating interface {
	PlanExtension
	// Validate gets the merged options of class and claim, a function that merges the claim's alone, and the number of devices, 0 for
	// any.
	Validate(merged Options, own func() (Options, error), count int64) error
}

// AdminChecking is a PlanExtension with settings in a GPUConfig.
type AdminChecking interface {
	PlanExtension
	// ForbiddenForAdmin returns why the merged options are forbidden for a claim with admin access; nil if they are allowed.
	ForbiddenForAdmin(merged Options) error
}

// Checking is a Configured extension that checks each configuration when it is written, besides its own validation.
type Checking interface {
	Configured
	// Check returns the function that checks the configurations of one object. It may bound the time that all checks of the object take.
	Check() func(config v1alpha1.Config) error
}

// extensions are those that claims are planned with.
func (s Source) extensions() []PlanExtension {
	if s.Extensions == nil {
		return Extensions(s.NodeName)
	}
	return s.Extensions
}

// configured is the extension that a configuration is of; nil without one.
func (s Source) configured(config v1alpha1.Config) Configured {
	for _, extension := range s.extensions() {
		if c, ok := extension.(Configured); ok && c.Reads(config) {
			return c
		}
	}
	return nil
}

// kinds returns the kinds of configuration that extensions read and package v1alpha1 does not know.
func (s Source) kinds() map[string]func() v1alpha1.Config {
	kinds := map[string]func() v1alpha1.Config{}
	for _, extension := range s.extensions() {
		if d, ok := extension.(Decoding); ok {
			maps.Copy(kinds, d.Kinds())
		}
	}
	return kinds
}

func unsupportedKind(kind string) error {
	return fmt.Errorf("%s is not supported by this version of the driver", kind)
}

// eachExtension calls a function for each extension that implements an interface, in their order.
func eachExtension[T PlanExtension](s Source, call func(T) error) error {
	for _, extension := range s.extensions() {
		if e, ok := extension.(T); ok {
			if err := call(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// Extend sets the extension's data of the claim.
func (p *Plan) Extend(kind string, data any) { extend(&p.Extensions, kind, data) }

// Extend sets the extension's data of the result.
func (r *Result) Extend(kind string, data any) { extend(&r.Extensions, kind, data) }

func extend(all *map[string]any, kind string, data any) {
	if *all == nil {
		*all = map[string]any{}
	}
	(*all)[kind] = data
}
