package hostfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	pciDevices = "/sys/bus/pci/devices"
	// vendorNVIDIA is the PCI vendor id as sysfs writes it.
	vendorNVIDIA = "0x10de"
	// classDisplay is the prefix of the PCI classes of VGA (0x0300) and 3D controllers (0x0302). NVSwitches and audio functions of GPUs
	// belong to other classes.
	classDisplay = "0x03"
)

// MayHaveGPU reports whether the host may have an NVIDIA GPU: an NVIDIA display controller on the PCI bus, or a loaded NVIDIA kernel
// module. The module does not load without a GPU, and integrated GPUs are not on the PCI bus. If the PCI devices cannot be listed, it
// returns true and the error, because there may be a GPU.
func (f *FS) MayHaveGPU() (bool, error) {
	if f.KernelModule() != "" {
		return true, nil
	}
	seen, err := f.resolve(pciDevices)
	if err != nil {
		return true, fmt.Errorf("listing PCI devices: %w", err)
	}
	entries, err := os.ReadDir(seen)
	if err != nil {
		return true, fmt.Errorf("listing PCI devices: %w", hostError(pciDevices, err))
	}
	for _, entry := range entries {
		vendor, err := f.pciFile(entry.Name(), "vendor")
		if err != nil {
			return true, fmt.Errorf("listing PCI devices: %w", err)
		}
		if vendor != vendorNVIDIA {
			continue
		}
		class, err := f.pciFile(entry.Name(), "class")
		if err != nil {
			return true, fmt.Errorf("listing PCI devices: %w", err)
		}
		if strings.HasPrefix(class, classDisplay) {
			return true, nil
		}
	}
	return false, nil
}

// pciFile reads an attribute of a PCI device; empty if the device was removed in the meantime.
func (f *FS) pciFile(address, name string) (string, error) {
	raw, err := f.read(filepath.Join(pciDevices, address, name))
	if errors.Is(err, gpu.ErrNotFound) {
		return "", nil
	}
	return strings.TrimSpace(string(raw)), err
}
