package claim

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

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
	if config.Sharing != nil {
		return fmt.Errorf("%s.sharing is not supported for a monitor device, which only shows GPUs that other claims use", kind)
	}
	if enforcesMemory(config) {
		return fmt.Errorf("%s.enforceMemory is not supported for a monitor device, which only shows GPUs that other claims use", kind)
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

// monitor is the node's monitor device, if there is one.
func (a advertised) monitor(r *resourceapi.DeviceRequestAllocationResult) (gpu.Device, error) {
	device := gpu.Monitor{}
	switch {
	case !a.source.Monitor:
		return nil, a.changed(r, "node %s has no monitor device now: the chart's value monitorDevices is not PerNode", a.source.NodeName)
	case r.Device != string(device.Name()):
		return nil, a.changed(r, "pool %q has no such device", r.Pool)
	case len(a.node.GPUs) == 0:
		return nil, a.missing(r)
	}
	return device, nil
}
