package claim

import (
	"cmp"
	"fmt"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// timeSlice plans GPUs that several claims share by time-slicing.
type timeSlice struct{}

// Type is gpu.TypeTimeSlice.
func (timeSlice) Type() gpu.DeviceType { return gpu.TypeTimeSlice }

// HasClass knows timeslice.<driver>.
func (timeSlice) HasClass(class, driver string) bool {
	return class == classOf(gpu.TypeTimeSlice, driver)
}

// Supports nothing about sharing.
func (timeSlice) Supports(kind string, config v1alpha1.Config) error {
	if setsSharing(config) {
		return fmt.Errorf("%s.sharing is not supported for a device of type %q, whose GPU other claims use too: the node's configuration "+
			"says how they share it", kind, gpu.TypeTimeSlice)
	}
	if enforcesMemory(config) {
		return fmt.Errorf("%s.enforceMemory is not supported by this version of the driver", kind)
	}
	return supported(kind, config)
}

// Admit refuses admin access.
func (timeSlice) Admit(r *Result, driver string) error {
	if r.Admin {
		return r.refuse(monitorFix(driver), "time-sliced shares cannot be requested with adminAccess")
	}
	return nil
}

// Plan turns the GPU's MIG mode off where it may be on.
func (timeSlice) Plan(p *Plan, r *Result, _ Options, modes gpu.Modes) error {
	p.withoutMIG(r, modes)
	return nil
}

// Resource is the node's name for the shares, else that of a GPU.
func (timeSlice) Resource(_ gpu.Device, modes gpu.Modes) string {
	if modes.TimeSlice == nil {
		return resourceGPU
	}
	return cmp.Or(modes.TimeSlice.Resource, resourceGPU)
}

// resourceGPU is the extended resource that requests a GPU.
const resourceGPU = "nvidia.com/gpu"
