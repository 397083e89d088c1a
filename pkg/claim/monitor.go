package claim

import (
	"fmt"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// monitor plans devices through which all GPUs of a node are seen.
type monitor struct{}

// Type is gpu.TypeMonitor.
func (monitor) Type() gpu.DeviceType { return gpu.TypeMonitor }

// HasClass knows monitor.<driver>.
func (monitor) HasClass(class, driver string) bool { return class == classOf(gpu.TypeMonitor, driver) }

// Supports nothing about sharing, memory, metrics and profiles.
func (monitor) Supports(kind string, config *v1alpha1.GPUConfig) error {
	switch {
	case config.Sharing != nil:
		return notForAdditional(kind+".sharing", gpu.TypeMonitor)
	case enforcesMemory(config):
		return notForAdditional(kind+".enforceMemory", gpu.TypeMonitor)
	}
	return nil
}

// Admit wants admin access.
func (monitor) Admit(r *Result, _ string) error {
	if !r.Admin {
		return r.refuse("set adminAccess: true on the request, in a namespace labelled resource.kubernetes.io/admin-access=true",
			"a monitor device shows GPUs that other claims use, so it can be requested with adminAccess only")
	}
	return nil
}

// Plan adds nothing: nothing about a GPU is changed.
func (monitor) Plan(*Plan, *Result, Options, gpu.Modes) error { return nil }

// Resource is none: an extended resource cannot request admin access.
func (monitor) Resource(gpu.Device, gpu.Modes) string { return "" }

// monitorFix says how a claim gets to see GPUs.
func monitorFix(driver string) string {
	return fmt.Sprintf("request a device of class %s to monitor the GPUs of a node; the chart's value monitorDevices: PerNode adds it",
		classOf(gpu.TypeMonitor, driver))
}
