package claim

import (
	"errors"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// adminPerfmon is why a perfmon device is not for admin access.
const adminPerfmon = "a perfmon device cannot be requested with adminAccess: it is the exclusive right to the performance counters of a GPU"

// perfmon plans devices that are the exclusive right to the performance counters of a GPU.
type perfmon struct{}

// Type is gpu.TypePerfmon.
func (perfmon) Type() gpu.DeviceType { return gpu.TypePerfmon }

// HasClass knows perfmon.<driver>.
func (perfmon) HasClass(class, driver string) bool { return class == classOf(gpu.TypePerfmon, driver) }

// Supports nothing about sharing and memory.
func (perfmon) Supports(kind string, config *v1alpha1.GPUConfig) error {
	switch {
	case config.Sharing != nil:
		return notForAdditional(kind+".sharing", gpu.TypePerfmon)
	case enforcesMemory(config):
		return notForAdditional(kind+".enforceMemory", gpu.TypePerfmon)
	}
	return nil
}

// Admit refuses admin access.
func (perfmon) Admit(r *Result, _ string) error {
	if r.Admin {
		return r.refuse("take adminAccess out of the request", adminPerfmon)
	}
	return nil
}

// Asked refuses admin access.
func (perfmon) Asked(_ int64, admin bool, _ *resourceapi.CapacityRequirements) error {
	if admin {
		return errors.New(adminPerfmon)
	}
	return nil
}

// Plan adds nothing: nothing about a GPU is changed.
func (perfmon) Plan(*Plan, *Result, Options, gpu.Modes) error { return nil }

// Resource is none: counters without a GPU are of no use.
func (perfmon) Resource(gpu.Device, gpu.Modes) string { return "" }

// covers reports whether a configuration that names no request is for devices of that type. It is for the GPUs of a claim, and not for the
// right to their counters, for which most of it would be refused.
func (o option) covers(device gpu.DeviceType) bool {
	return o.fits(device) && device != gpu.TypePerfmon
}
