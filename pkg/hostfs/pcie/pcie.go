// Package pcie finds the location of a device on the host's PCI buses, with Kubernetes' own library. That library imports the types of the
// Kubernetes API, which programs that need only package hostfs should not include.
package pcie

import (
	"path/filepath"

	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// unknownNUMANode is the NUMANode of gpu.PCI if sysfs does not report one.
const unknownNUMANode = -1

// Host is a host with access to its PCI buses.
type Host struct {
	*hostfs.FS
	root string
}

// New returns the host whose root filesystem is mounted at root.
func New(root string, search ...string) *Host {
	return &Host{FS: hostfs.New(root, search...), root: root}
}

// PCI returns the PCIe root and NUMA node of the device with that address ("0000:3b:00.0"). Unknown values are an empty root and NUMA
// node -1.
func (h *Host) PCI(busID string) gpu.PCI {
	place := gpu.PCI{BusID: busID, NUMANode: unknownNUMANode}
	sysfs := deviceattribute.WithFSFromRoot(filepath.Join(h.root, "sys"))
	if root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(busID, sysfs); err == nil {
		place.Root = *root.Value.StringValue
	}
	node, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(busID, deviceattribute.ScalarAttribute, sysfs)
	if err == nil {
		place.NUMANode = int(*node.Value.IntValue)
	}
	return place
}
