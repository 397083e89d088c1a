package claim

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// options are a claim's opaque configurations of this driver, by their position in the allocation.
type options map[*resourceapi.OpaqueDeviceConfiguration]v1alpha1.Config

// decode reads every configuration for this driver, also those that no result of ours uses: a mistake is a mistake.
func (s Source) decode(devices *resourceapi.DeviceAllocationResult) (options, error) {
	decoded := options{}
	for i := range devices.Config {
		config := &devices.Config[i]
		opaque := config.Opaque
		if opaque == nil || opaque.Driver != s.Driver {
			continue
		}
		options, err := v1alpha1.Decode(opaque.Parameters.Raw)
		if err != nil {
			return nil, &Refusal{
				Request: s.about(config.Requests, devices.Results),
				Cause:   fmt.Sprintf("opaque configuration of the %s: %v", writer(config.Source), err),
				Fix:     "correct it and make the claim anew",
			}
		}
		decoded[opaque] = options
	}
	return decoded, nil
}

// allow checks the configurations that apply to one result: the class's before the claim's, later ones over earlier ones.
func (o options) allow(configs []resourceapi.DeviceAllocationConfiguration, r *resourceapi.DeviceRequestAllocationResult, device gpu.Device) error {
	merged := &v1alpha1.GPUConfig{}
	for _, source := range []resourceapi.AllocationConfigSource{
		resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim,
	} {
		for _, config := range resourceclaim.ConfigForResult(configs, *r) {
			decoded, ours := o[config.Opaque]
			if !ours || config.Source != source {
				continue
			}
			if err := unserved(decoded, device); err != nil {
				return &Refusal{
					Request: r.Request, Device: r.Device, Cause: err.Error(),
					Fix: fmt.Sprintf("take it out of the %s", writer(source)),
				}
			}
			gpuConfig, ok := decoded.(*v1alpha1.GPUConfig)
			if !ok {
				continue
			}
			var err error
			if merged, err = v1alpha1.Merge(merged, gpuConfig, mergeSource(source)); err != nil {
				return &Refusal{Request: r.Request, Device: r.Device, Cause: err.Error()}
			}
		}
	}
	return nil
}

// unserved names what the device cannot have, and what this version knows and cannot do yet.
func unserved(config v1alpha1.Config, device gpu.Device) error {
	switch c := config.(type) {
	case *v1alpha1.GPUConfig:
		if c.Sharing != nil && device.Type() == gpu.TypeMIG {
			return fmt.Errorf("%s.sharing is not for a MIG device, which is a share of its GPU already; valid for it is a %s without sharing",
				c.Kind(), c.Kind())
		}
		if c.Sharing != nil {
			return fmt.Errorf("%s.sharing is not served by this version of the driver", c.Kind())
		}
		if c.EnforceMemory != nil && *c.EnforceMemory {
			return fmt.Errorf("%s.enforceMemory is not served by this version of the driver", c.Kind())
		}
		return nil
	default:
		return fmt.Errorf("%s is not served by this version of the driver", c.Kind())
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
