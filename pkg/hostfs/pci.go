package hostfs

import (
	"path/filepath"

	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// unknownNUMANode is the NUMANode of gpu.PCI when sysfs has none.
const unknownNUMANode = -1

// PCI returns the PCIe root and NUMA node of the device with that address ("0000:3b:00.0"). Unknown values are an empty root and NUMA
// node -1.
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
