package claim

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// Options are the opaque configuration of one result, merged by kind: the class's settings, and over them the claim's settings, later
// ones over earlier ones.
type Options struct {
	// GPU is nil without a GPUConfig.
	GPU *v1alpha1.GPUConfig
	// Extensions contains the merged configuration of each extension, of the extension's own type.
	Extensions map[string]any
}

// OptionsOf is the merged configuration of an extension; the zero value without one.
func OptionsOf[T any](o Options, kind string) T {
	merged, _ := o.Extensions[kind].(T)
	return merged
}

// set is a copy with the merged configuration of an extension.
func (o Options) set(kind string, merged any) Options {
	o.Extensions = maps.Clone(o.Extensions)
	if o.Extensions == nil {
		o.Extensions = map[string]any{}
	}
	o.Extensions[kind] = merged
	return o
}

// with overlays the options with a configuration.
func (s Source) with(o Options, config v1alpha1.Config, from v1alpha1.Source) (_ Options, err error) {
	if c, ok := config.(*v1alpha1.GPUConfig); ok {
		o.GPU, err = v1alpha1.Merge(o.GPU, c, from)
		return o, err
	}
	extension := s.configured(config)
	if extension == nil {
		return o, unsupportedKind(config.Kind())
	}
	merged, err := extension.Merge(o.Extensions[extension.Kind()], config, from)
	if err != nil {
		return o, err
	}
	return o.set(extension.Kind(), merged), nil
}

// overlay lays the fields that override sets over the fields of base, into a new object. Lists are replaced.
func overlay[T any](base, override *T) (*T, error) {
	merged := new(T)
	for _, layer := range []*T{base, override} {
		if layer == nil {
			continue
		}
		raw, err := json.Marshal(layer)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(raw, merged); err != nil {
			return nil, err
		}
	}
	return merged, nil
}

// defaults are the cluster's for one claim, by the kind of the extension.
type defaults struct {
	overlay   map[string]func(r *Result, merged any) (any, error)
	undecided map[string]error
}

func (s Source) defaults(rc *resourceapi.ResourceClaim) defaults {
	d := defaults{overlay: map[string]func(*Result, any) (any, error){}, undecided: map[string]error{}}
	for _, extension := range s.extensions() {
		if e, ok := extension.(Defaulting); ok {
			d.overlay[e.Kind()], d.undecided[e.Kind()] = e.Defaults(rc)
		}
	}
	return d
}

// over overlays the class's settings of a result with the cluster's defaults.
func (d defaults) over(o Options, r *Result) (Options, error) {
	if r.Admin || !r.Device.Type().UsesGPU() {
		return o, nil
	}
	for _, kind := range slices.Sorted(maps.Keys(d.overlay)) {
		if d.overlay[kind] == nil {
			continue
		}
		merged, err := d.overlay[kind](r, o.Extensions[kind])
		if err != nil {
			return o, err
		}
		if merged != nil {
			o = o.set(kind, merged)
		}
	}
	return o, nil
}

// setInterval reports whether they set a time-slice interval.
func (o Options) setInterval() bool {
	return o.GPU != nil && o.GPU.Sharing != nil && o.GPU.Sharing.TimeSlicing != nil && o.GPU.Sharing.TimeSlicing.Interval != nil
}

// enforcesMemory reports whether a configuration requires a memory limit that processes cannot exceed. Each family says whether its
// devices have one.
func enforcesMemory(c *v1alpha1.GPUConfig) bool {
	return c != nil && c.EnforceMemory != nil && *c.EnforceMemory
}

// forbidden names options that a claim with admin access cannot set, whatever its device is.
func (s Source) forbidden(o Options) error {
	if o.setInterval() {
		return errors.New(adminInterval)
	}
	if err := eachExtension(s, func(e AdminChecking) error { return e.ForbiddenForAdmin(o) }); err != nil {
		return err
	}
	return eachExtension(s, func(e Configured) error {
		if merged, set := o.Extensions[e.Kind()]; set {
			return e.Forbidden(merged)
		}
		return nil
	})
}
