// Package allocator runs the scheduler's own allocator on published devices. It hides the differences between the versions of the library:
// without build tags it uses the version in go.mod, with the tag k8s138 the version in hack/k8s138.mod.
package allocator

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Features are the features that Kubernetes 1.37 and 1.38 enable without alpha gates.
var Features = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
	FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true,
}

// Allocated describes the allocated devices.
type Allocated struct {
	// Devices are allocated as a whole.
	Devices sets.Set[structured.DeviceID]
	// Shares are shares of devices for several claims, Consumed is their consumed capacity.
	Shares   sets.Set[structured.SharedDeviceID]
	Consumed structured.ConsumedCapacityCollection
}

// Nothing returns an Allocated without devices.
func Nothing() Allocated {
	return Allocated{
		Devices: sets.New[structured.DeviceID](), Shares: sets.New[structured.SharedDeviceID](), Consumed: structured.NewConsumedCapacityCollection(),
	}
}

// New returns an allocator for the devices in these ResourceSlices that are not allocated. An error lists the ResourceSlices that it cannot
// read.
func New(
	ctx context.Context, features structured.Features, a Allocated, classes structured.DeviceClassLister, slices []*resourceapi.ResourceSlice,
	cache *cel.Cache,
) (structured.Allocator, error) {
	read, err := read(slices)
	if err != nil {
		return nil, fmt.Errorf("converting ResourceSlices for the allocator: %w", err)
	}
	allocator, err := structured.NewAllocator(ctx, features, a.state(), classes, read, cache)
	if err != nil {
		return nil, fmt.Errorf("creating an allocator: %w", err)
	}
	return allocator, nil
}
