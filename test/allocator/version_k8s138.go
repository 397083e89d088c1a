//go:build k8s138

package allocator

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// state returns the devices of shares, and not the shares.
func (a Allocated) state() structured.AllocatedState {
	shared := sets.New[structured.DeviceID]()
	for share := range a.Shares {
		shared.Insert(share.GetDeviceID())
	}
	return structured.AllocatedState{AllocatedDevices: a.Devices, AllocatedSharedDeviceIDs: shared, AggregatedCapacity: a.Consumed}
}

// read converts the ResourceSlices to the library's own type.
func read(slices []*resourceapi.ResourceSlice) ([]*draapi.ResourceSlice, error) {
	converted := make([]*draapi.ResourceSlice, len(slices))
	for i, slice := range slices {
		converted[i] = &draapi.ResourceSlice{}
		if err := draapi.Convert_v1_ResourceSlice_To_api_ResourceSlice(slice, converted[i], nil); err != nil {
			return nil, fmt.Errorf("%s: %w", slice.Name, err)
		}
	}
	return converted, nil
}

// Devices returns the devices of a ResourceSlice as selectors see them, in their order.
func Devices(of *resourceapi.ResourceSlice) ([]cel.Device, error) {
	converted, err := read([]*resourceapi.ResourceSlice{of})
	if err != nil {
		return nil, err
	}
	slice := converted[0]
	devices := make([]cel.Device, len(slice.Spec.Devices))
	for i := range slice.Spec.Devices {
		d := &slice.Spec.Devices[i]
		devices[i] = cel.Device{Driver: of.Spec.Driver, LookupUniqueString: slice.LookupUniqueString, Attributes: d.Attributes, Capacity: d.Capacity}
	}
	return devices, nil
}
