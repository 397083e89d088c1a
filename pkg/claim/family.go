package claim

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// DevicePlanner plans the allocation results of one family, the devices of one type. Each is in a file of its own. Its
// refusals are of type *Refusal.
type DevicePlanner interface {
	// Type is the type of the devices; the other methods get no devices of another one.
	Type() gpu.DeviceType
	// HasClass reports whether a DeviceClass is, by its name, one of the driver's that selects only devices of the family.
	HasClass(class, driver string) bool
	// Supports returns an error that names the parts of one GPUConfig of a claim or class that the devices cannot have. kind is the
	// configuration's as it was written.
	Supports(kind string, config *v1alpha1.GPUConfig) error
	// Admit refuses a result that the devices are not for, whatever its options are.
	Admit(r *Result, driver string) error
	// Plan adds the preconditions and steps of an admitted result to the plan. modes are those in which its GPU is advertised.
	Plan(p *Plan, r *Result, options Options, modes gpu.Modes) error
	// Resource names the extended resource that requests a share of the device; empty without one.
	Resource(d gpu.Device, modes gpu.Modes) string
}

// Absences is implemented by a DevicePlanner that knows why a device of its own is not advertised.
type Absences interface {
	// Absent returns a refusal, or else a cause that replaces the general one; neither for a device of another family.
	Absent(r *resourceapi.DeviceRequestAllocationResult, g *gpu.GPU) (cause string, refused error)
}

// Requests is implemented by a DevicePlanner whose devices not every request is for.
type Requests interface {
	// Asked returns the error of a request for count devices, 0 if it may be for any number, that holds for every allocation.
	Asked(count int64, admin bool, capacity *resourceapi.CapacityRequirements) error
}

// families are those that claims are planned with.
func (s Source) families() []DevicePlanner {
	if s.Families == nil {
		return Families()
	}
	return s.Families
}

// family is the one of a type of device, nil for a type that none is for.
func (s Source) family(device gpu.DeviceType) DevicePlanner {
	families := s.families()
	if i := slices.IndexFunc(families, func(f DevicePlanner) bool { return f.Type() == device }); i >= 0 {
		return families[i]
	}
	return nil
}

// refuseStrategy refuses a sharing strategy that devices cannot have. kind is the configuration's as it was written.
func refuseStrategy(refused v1alpha1.Strategy, kind string, config *v1alpha1.GPUConfig, devices string) error {
	if config.Sharing == nil || config.Sharing.Uses() != refused {
		return nil
	}
	var supported []string
	for _, strategy := range v1alpha1.Strategies() {
		if strategy != refused {
			supported = append(supported, string(strategy))
		}
	}
	return fmt.Errorf("%s.sharing with strategy %s is not supported for %s; supported values: %s", kind, refused, devices,
		strings.Join(supported, ", "))
}
