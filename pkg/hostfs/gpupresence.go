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
	// classDisplay begins the PCI class of VGA (0x0300) and 3D controllers (0x0302). NVSwitches and the audio functions of
	// GPUs have others.
	classDisplay = "0x03"
)

// MayHaveGPU reports whether the host has an NVIDIA GPU: a display controller of NVIDIA on the PCI bus, or a loaded NVIDIA kernel
// module, which does not load without a GPU (those of a system on chip are not on the PCI bus). An error means that the PCI
// devices could not be listed, so that there may be one.
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

// pciFile reads one file of a PCI device; empty when the device was removed meanwhile.
func (f *FS) pciFile(address, name string) (string, error) {
	raw, err := f.read(filepath.Join(pciDevices, address, name))
	if errors.Is(err, gpu.ErrNotFound) {
		return "", nil
	}
	return strings.TrimSpace(string(raw)), err
}
