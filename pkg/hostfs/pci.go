package hostfs

import (
	"path/filepath"

	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// unknownNUMANode is what gpu.PCI says where the machine does not tell.
const unknownNUMANode = -1

// PCI tells where the device of that address ("0000:3b:00.0") sits. What sysfs does not know stays unknown: an empty root,
// NUMA node -1.
func (f *FS) PCI(busID string) gpu.PCI {
	place := gpu.PCI{BusID: busID, NUMANode: unknownNUMANode}
	sysfs := deviceattribute.WithFSFromRoot(filepath.Join(f.root, "sys"))
	if root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(busID, sysfs); err == nil {
		place.Root = *root.Value.StringValue
	}
	node, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(busID, deviceattribute.ScalarAttribute, sysfs)
	if err == nil {
		place.NUMANode = int(*node.Value.IntValue)
	}
	return place
}
