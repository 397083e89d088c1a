//go:build !k8s138

package allocator

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

func (a Allocated) state() structured.AllocatedState {
	return structured.AllocatedState{AllocatedDevices: a.Devices, AllocatedSharedDeviceIDs: a.Shares, AggregatedCapacity: a.Consumed}
}

// read returns the ResourceSlices: the allocator reads them in the API server's form.
func read(slices []*resourceapi.ResourceSlice) ([]*resourceapi.ResourceSlice, error) {
	return slices, nil
}

// Devices returns the devices of a ResourceSlice as selectors see them, in their order.
func Devices(of *resourceapi.ResourceSlice) ([]cel.Device, error) {
	devices := make([]cel.Device, len(of.Spec.Devices))
	for i, d := range of.Spec.Devices {
		devices[i] = cel.Device{Driver: of.Spec.Driver, Attributes: d.Attributes, Capacity: d.Capacity}
	}
	return devices, nil
}
