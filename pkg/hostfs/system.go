package hostfs

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	memoryFile = "/proc/meminfo"
	// gpuInformation is the kernel module's directory with information about each GPU, by PCI address.
	gpuInformation = "/proc/driver/nvidia/gpus"
)

// SystemMemory returns the memory of the host in bytes. gpu.ErrNotFound: the kernel does not report it.
func (f *FS) SystemMemory() (uint64, error) {
	text, err := f.line(memoryFile, "MemTotal")
	if err != nil {
		return 0, err
	}
	kibibytes, err := strconv.ParseUint(strings.TrimSuffix(text, " kB"), 10, 54)
	if err != nil {
		return 0, fmt.Errorf("reading %s: MemTotal: must be a number of kB, got %q", memoryFile, text)
	}
	return kibibytes << 10, nil
}

// GPUMinor returns the minor number of the device node of the GPU with that PCI address, as the loaded kernel module reports it.
// gpu.ErrNotFound: the GPU does not exist, or no kernel module is loaded.
func (f *FS) GPUMinor(busID string) (int, error) {
	file := filepath.Join(gpuInformation, busID, "information")
	text, err := f.line(file, "Device Minor")
	if err != nil {
		return 0, err
	}
	minor, err := strconv.ParseUint(text, 10, 20)
	if err != nil {
		return 0, fmt.Errorf("reading %s: Device Minor: must be a number, got %q", file, text)
	}
	return int(minor), nil
}

// line reads the value of the line "<key>: <value>" of a file. gpu.ErrNotFound: the file does not exist, or does not contain the line.
func (f *FS) line(file, key string) (string, error) {
	raw, err := f.read(file)
	if err != nil {
		return "", fmt.Errorf("reading %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("reading %s: it has no line %q: %w", file, key, gpu.ErrNotFound)
}
