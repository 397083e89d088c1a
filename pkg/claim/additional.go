package claim

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// additional is one of the devices that the node advertises in addition to its layout.
func (a advertised) additional(r *resourceapi.DeviceRequestAllocationResult) (gpu.Device, error) {
	for _, d := range a.source.Additional.Devices(a.node.GPUs) {
		if string(d.Name()) == r.Device {
			return d, nil
		}
	}
	switch node := a.source.NodeName; {
	case strings.HasSuffix(r.Device, "-"+string(gpu.TypePerfmon)):
		if !a.source.Additional.Perfmon {
			return nil, a.changed(r, "node %s has no perfmon devices now: the chart's value deviceClasses.perfmonDevices is not PerGPU", node)
		}
	case !a.source.Additional.Monitor:
		return nil, a.changed(r, "node %s has no monitor device now: the chart's value monitorDevices is not PerNode", node)
	case r.Device != string(gpu.Monitor{}.Name()):
		return nil, a.changed(r, "pool %q has no such device", r.Pool)
	}
	return nil, a.missing(r)
}

// notForAdditional says why an additional device cannot have an option; nil for other devices.
func notForAdditional(option string, device gpu.DeviceType) error {
	switch device {
	case gpu.TypeMonitor:
		return fmt.Errorf("%s is not supported for a monitor device, which only shows GPUs that other claims use", option)
	case gpu.TypePerfmon:
		return fmt.Errorf("%s is not supported for a perfmon device, which only reserves the performance counters of a GPU", option)
	default:
		return nil
	}
}
