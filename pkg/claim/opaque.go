package claim

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// opaque are a claim's opaque configurations of this driver, by their position in the allocation.
type opaque map[*resourceapi.OpaqueDeviceConfiguration]option

// option is one configuration.
type option struct {
	config v1alpha1.Config
	// kind is its kind as it was written; only is the one type of device that it is for, empty for all.
	kind string
	only gpu.DeviceType
	// limits are memory limits of strategy MPS for single devices, by UUID or by position among those that it is for.
	limits map[string]resource.Quantity
}

// nvidiaDriver is the name of NVIDIA's own driver. Under that name Prism accepts manifests that were written for it.
const nvidiaDriver = "gpu.nvidia.com"

// classOf is the name of the DeviceClass of a type of device.
func classOf(device gpu.DeviceType, driver string) string { return string(device) + "." + driver }

// decode reads every configuration for this driver, also those that no result of ours uses: an invalid one is refused too.
func (s Source) decode(devices *resourceapi.DeviceAllocationResult) (opaque, error) {
	decoded := opaque{}
	for i := range devices.Config {
		config := &devices.Config[i]
		if config.Opaque == nil || config.Opaque.Driver != s.Driver {
			continue
		}
		read, err := s.read(config.Opaque.Parameters.Raw)
		if err != nil {
			return nil, &Refusal{
				Request: s.about(config.Requests, devices.Results),
				Cause:   fmt.Sprintf("opaque configuration of the %s: %v", sourceOf(config.Source), err),
				Fix:     "correct it and recreate the claim",
			}
		}
		decoded[config.Opaque] = read
	}
	return decoded, nil
}

// read reads one configuration; under the name of NVIDIA's driver also one that was written for that.
func (s Source) read(raw []byte) (option, error) {
	if s.Driver != nvidiaDriver || !v1alpha1.WrittenForNVIDIA(raw) {
		decoder := v1alpha1.Decoder{More: s.kinds(), BesideNVIDIA: s.Driver == nvidiaDriver}
		config, err := decoder.Decode(raw)
		if err != nil {
			return option{}, err
		}
		return option{config: config, kind: config.Kind()}, nil
	}
	foreign, err := v1alpha1.DecodeNVIDIA(raw)
	if err != nil {
		return option{}, err
	}
	only := gpu.TypeGPU
	if foreign.Kind == v1alpha1.KindNVIDIAMIG {
		only = gpu.TypeMIG
	}
	return option{config: foreign.Config, kind: foreign.Kind, only: only, limits: foreign.MemoryLimits}, nil
}

// layers are the sources of the options of results besides a class: configurations of the allocation, and the cluster's defaults.
type layers struct {
	source   Source
	configs  []resourceapi.DeviceAllocationConfiguration
	defaults defaults
}

// merge merges the configurations that apply to one result, the class's before the cluster's defaults before the claim's, and refuses
// options that the device cannot have. For a result with admin access only the class's settings about claims count: nothing about a GPU
// is changed then, and the author of a claim cannot take anything out of its class. The class's settings about extensions are ignored
// then.
func (o opaque) merge(from layers, plan *Plan, r *Result, family DevicePlanner) (merged Options, err error) {
	if merged, err = o.mergeFrom(resourceapi.AllocationConfigSourceClass, merged, from, plan, r, family); err != nil {
		return Options{}, err
	}
	if merged, err = from.defaults.over(merged, r); err != nil {
		return Options{}, err
	}
	return o.mergeFrom(resourceapi.AllocationConfigSourceClaim, merged, from, plan, r, family)
}

// mergeFrom lays the settings of class or claim over the options.
func (o opaque) mergeFrom(
	source resourceapi.AllocationConfigSource, merged Options, from layers, plan *Plan, r *Result, family DevicePlanner,
) (_ Options, err error) {
	for i := range from.configs {
		config := &from.configs[i]
		decoded, ours := o[config.Opaque]
		// One that names no request applies to all results of its type.
		if !ours || config.Source != source || !r.matches(config) || len(config.Requests) == 0 && !decoded.covers(family.Type()) {
			continue
		}
		if source == resourceapi.AllocationConfigSourceClass && r.Admin {
			if from.source.configured(decoded.config) != nil {
				continue
			}
			decoded = decoded.forAdmin()
		}
		if err := from.source.unsupported(decoded, family); err != nil {
			return Options{}, r.refuse(fmt.Sprintf("take it out of the %s", sourceOf(source)), "%v", err)
		}
		if decoded, err = plan.forDevice(config, decoded, r); err != nil {
			return Options{}, r.refuse("correct it and recreate the claim", "%v", err)
		}
		if merged, err = from.source.with(merged, decoded.config, sourceOf(source)); err != nil {
			return Options{}, r.refuse("", "%v", err)
		}
	}
	return merged, nil
}

// forAdmin is the part of a class's settings that still applies to a device with admin access. Only the settings of how a GPU is used
// mean nothing then.
func (o option) forAdmin() option {
	c, ok := o.config.(*v1alpha1.GPUConfig)
	if !ok {
		return o
	}
	return option{kind: o.kind, config: &v1alpha1.GPUConfig{TypeMeta: c.TypeMeta, ClaimOverride: c.ClaimOverride}}
}

// fits reports whether it is for devices of that type; empty stands for a type that is not known yet.
func (o option) fits(device gpu.DeviceType) bool {
	return o.only == "" || device == "" || o.only == device
}

// unsupported names options that devices of the family cannot have, and known options that this version does not support yet. If the
// family is not known yet, nil, it names options that no device can have.
func (s Source) unsupported(o option, family DevicePlanner) error {
	device := gpu.DeviceType("")
	if family != nil {
		device = family.Type()
	}
	if !o.fits(device) {
		return fmt.Errorf("%s is for a device of type %q and not of type %q", o.kind, o.only, device)
	}
	if c, ok := o.config.(*v1alpha1.GPUConfig); ok {
		if family == nil {
			return nil
		}
		return family.Supports(o.kind, c)
	}
	if extension := s.configured(o.config); extension != nil {
		return extension.Supports(o.config, device)
	}
	return unsupportedKind(o.kind)
}

// sourceOf is the object that a configuration was written in.
func sourceOf(source resourceapi.AllocationConfigSource) v1alpha1.Source {
	if source == resourceapi.AllocationConfigSourceClass {
		return v1alpha1.FromClass
	}
	return v1alpha1.FromClaim
}

// about names the request that a configuration is for: the first that it lists, or the only one there is. Kubernetes leaves the list out
// if a configuration is for all of them.
func (s Source) about(listed []string, results []resourceapi.DeviceRequestAllocationResult) string {
	if len(listed) > 0 {
		return listed[0]
	}
	only := ""
	for i := range results {
		switch {
		case results[i].Driver != s.Driver || results[i].Request == only:
		case only != "":
			return ""
		default:
			only = results[i].Request
		}
	}
	return only
}
