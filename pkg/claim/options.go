package claim

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// options are a claim's opaque configurations of this driver, by their position in the allocation.
type options map[*resourceapi.OpaqueDeviceConfiguration]option

// option is one configuration.
type option struct {
	config v1alpha1.Config
	// kind is its kind as it was written; only is the one type of device that it is for, empty for all.
	kind string
	only gpu.DeviceType
}

// foreignDriver is the name of NVIDIA's own driver. Whoever runs Prism under that name has manifests that were written for it.
const foreignDriver = "gpu.nvidia.com"

// decode reads every configuration for this driver, also those that no result of ours uses: a mistake is a mistake.
func (s Source) decode(devices *resourceapi.DeviceAllocationResult) (options, error) {
	decoded := options{}
	for i := range devices.Config {
		config := &devices.Config[i]
		opaque := config.Opaque
		if opaque == nil || opaque.Driver != s.Driver {
			continue
		}
		read, err := s.read(opaque.Parameters.Raw)
		if err != nil {
			return nil, &Refusal{
				Request: s.about(config.Requests, devices.Results),
				Cause:   fmt.Sprintf("opaque configuration of the %s: %v", writer(config.Source), err),
				Fix:     "correct it and make the claim anew",
			}
		}
		decoded[opaque] = read
	}
	return decoded, nil
}

// read reads one configuration; under the name of NVIDIA's driver also one that was written for that.
func (s Source) read(raw []byte) (option, error) {
	if s.Driver != foreignDriver || !v1alpha1.WrittenForNVIDIA(raw) {
		config, err := v1alpha1.Decode(raw)
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
	return option{config: foreign.Config, kind: foreign.Kind, only: only}, nil
}

// apply merges the configurations that apply to one result, the class's before the claim's, later ones over earlier ones, and
// refuses what the device cannot have. For a result with admin access only what a class says about claims counts: nothing about a GPU is
// changed then, and the author of a claim cannot take anything out of its class.
func (o options) apply(
	configs []resourceapi.DeviceAllocationConfiguration, r *resourceapi.DeviceRequestAllocationResult, device gpu.Device,
) (*v1alpha1.GPUConfig, error) {
	merged := &v1alpha1.GPUConfig{}
	for _, source := range []resourceapi.AllocationConfigSource{
		resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim,
	} {
		for _, config := range resourceclaim.ConfigForResult(configs, *r) {
			decoded, ours := o[config.Opaque]
			// One that names no request is for those of its type among all.
			if !ours || config.Source != source || len(config.Requests) == 0 && !decoded.fits(device.Type()) {
				continue
			}
			if source == resourceapi.AllocationConfigSourceClass && r.AdminAccess != nil && *r.AdminAccess {
				decoded = decoded.forAdmin()
			}
			if err := decoded.unserved(device.Type()); err != nil {
				return nil, &Refusal{
					Request: r.Request, Device: r.Device, Cause: err.Error(),
					Fix: fmt.Sprintf("take it out of the %s", writer(source)),
				}
			}
			gpuConfig, ok := decoded.config.(*v1alpha1.GPUConfig)
			if !ok {
				continue
			}
			var err error
			if merged, err = v1alpha1.Merge(merged, gpuConfig, mergeSource(source)); err != nil {
				return nil, &Refusal{Request: r.Request, Device: r.Device, Cause: err.Error()}
			}
		}
	}
	return merged, nil
}

// forAdmin is what a class still says of a device that a claim has with admin access. Only the settings of how a GPU is used have no
// meaning then.
func (o option) forAdmin() option {
	c, ok := o.config.(*v1alpha1.GPUConfig)
	if !ok {
		return o
	}
	return option{kind: o.kind, config: &v1alpha1.GPUConfig{TypeMeta: c.TypeMeta, ClaimOverride: c.ClaimOverride}}
}

// fits tells whether it is for devices of that type; empty stands for a type that is not known yet.
func (o option) fits(device gpu.DeviceType) bool {
	return o.only == "" || device == "" || o.only == device
}

// unserved names what a device of that type cannot have, and what this version knows and cannot do yet. Of a type that is not known
// yet, empty, it names what no device can have.
func (o option) unserved(device gpu.DeviceType) error {
	if !o.fits(device) {
		return fmt.Errorf("%s is for a device of type %q and not of type %q", o.kind, o.only, device)
	}
	c, ok := o.config.(*v1alpha1.GPUConfig)
	switch {
	case !ok:
		return fmt.Errorf("%s is not served by this version of the driver", o.kind)
	case c.Sharing != nil && device != "" && device != gpu.TypeGPU:
		return o.unshared(device)
	case c.Sharing != nil && (c.Sharing.MPS != nil || c.Sharing.Strategy != nil && *c.Sharing.Strategy == v1alpha1.StrategyMPS):
		return fmt.Errorf("%s.sharing with strategy %s is not served by this version of the driver; served is %s", o.kind,
			v1alpha1.StrategyMPS, v1alpha1.StrategyTimeSlicing)
	case c.EnforceMemory != nil && *c.EnforceMemory:
		return fmt.Errorf("%s.enforceMemory is not served by this version of the driver", o.kind)
	}
	return nil
}

// unshared says why a device that is not a whole GPU takes no sharing.
func (o option) unshared(device gpu.DeviceType) error {
	switch device {
	case gpu.TypeMIG:
		return fmt.Errorf("%[1]s.sharing is not for a MIG device, which is a share of its GPU already; valid for it is a %[1]s without sharing", o.kind)
	case gpu.TypeMonitor:
		return fmt.Errorf("%s.sharing is not for a monitor device, which only shows GPUs that others use", o.kind)
	default:
		return fmt.Errorf("%s.sharing is not for a device of type %q, whose GPU other claims use too: how they share it is said in the "+
			"configuration of the node", o.kind, device)
	}
}

func mergeSource(source resourceapi.AllocationConfigSource) v1alpha1.Source {
	if source == resourceapi.AllocationConfigSourceClass {
		return v1alpha1.FromClass
	}
	return v1alpha1.FromClaim
}

// writer names who wrote a configuration, in the user's words.
func writer(source resourceapi.AllocationConfigSource) string { return string(mergeSource(source)) }

// about names the request that a configuration is for: the first that it lists, or the only one there is. Kubernetes leaves
// the list out where a configuration is for all of them.
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
