// Package allocator runs the scheduler's own allocator on what a driver publishes. It hides what differs between the versions of the library:
// without build tags that of go.mod, with the tag k8s138 that of hack/k8s138.mod.
package allocator

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Features are those that Kubernetes 1.37 and 1.38 have without alpha gates.
var Features = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
	FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true,
}

// Allocated is what claims have of the devices.
type Allocated struct {
	// Devices are allocated as a whole.
	Devices sets.Set[structured.DeviceID]
	// Shares are of devices for several claims, Consumed is what they take.
	Shares   sets.Set[structured.SharedDeviceID]
	Consumed structured.ConsumedCapacityCollection
}

// Nothing returns an Allocated without devices.
func Nothing() Allocated {
	return Allocated{
		Devices: sets.New[structured.DeviceID](), Shares: sets.New[structured.SharedDeviceID](), Consumed: structured.NewConsumedCapacityCollection(),
	}
}

// New returns an allocator of devices in these ResourceSlices beside what is allocated. An error says which of them it cannot read.
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
		return nil, fmt.Errorf("making an allocator: %w", err)
	}
	return allocator, nil
}
