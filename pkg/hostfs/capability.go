package hostfs

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// capabilityDevice is the name of the capability devices in /proc/devices.
const capabilityDevice = "nvidia-caps"

// MIGNodes returns the device nodes that a program needs to use a MIG device: one for the GPU instance and one for the compute instance, on
// the GPU with the minor number gpuMinor. The kernel reports their numbers. A node that does not exist yet is no error, because container
// runtimes create nodes of their own. gpu.ErrNotFound: the instance does not exist. An existing node with other numbers is an error,
// because programs on the host would open another device.
func (f *FS) MIGNodes(gpuMinor, gi, ci int) ([]CharDevice, error) {
	major, err := f.major(capabilityDevice)
	if err != nil {
		return nil, err
	}
	instance := fmt.Sprintf("/proc/driver/nvidia/capabilities/gpu%d/mig/gi%d", gpuMinor, gi)
	var nodes []CharDevice
	for _, file := range []string{instance + "/access", fmt.Sprintf("%s/ci%d/access", instance, ci)} {
		node, err := f.capabilityNode(major, file)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// MIGMonitorNode returns the device node that lets programs see every MIG device of the host's GPUs, including those created later.
// Numbers and existence are as in MIGNodes; gpu.ErrNotFound: the driver has no such capability.
func (f *FS) MIGMonitorNode() (CharDevice, error) {
	major, err := f.major(capabilityDevice)
	if err != nil {
		return CharDevice{}, err
	}
	return f.capabilityNode(major, "/proc/driver/nvidia/capabilities/mig/monitor")
}

// capabilityNode returns the device node of the capability that the file describes.
func (f *FS) capabilityNode(major uint32, file string) (CharDevice, error) {
	minor, err := f.capabilityMinor(file)
	if err != nil {
		return CharDevice{}, err
	}
	node := CharDevice{Path: fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor), Major: major, Minor: minor}
	if existing, err := f.CharDevice(node.Path); err == nil && existing != node {
		return CharDevice{}, fmt.Errorf("checking device node %s: its numbers are %d:%d, but the kernel reports %d:%d; remove it and run "+
			"nvidia-modprobe -f %s", node.Path, existing.Major, existing.Minor, node.Major, node.Minor, file)
	}
	return node, nil
}

// capabilityMinor reads the line "DeviceFileMinor: <n>" of a capability.
func (f *FS) capabilityMinor(file string) (uint32, error) {
	raw, err := f.read(file)
	if err != nil {
		return 0, fmt.Errorf("reading a MIG capability: %w", err)
	}
	for line := range bytes.Lines(raw) {
		key, value, _ := strings.Cut(string(line), ":")
		if key != "DeviceFileMinor" {
			continue
		}
		minor, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", file, err)
		}
		return uint32(minor), nil
	}
	return 0, fmt.Errorf("reading %s: it contains no DeviceFileMinor", file)
}

// major returns the major number of a character device's driver from /proc/devices.
func (f *FS) major(name string) (uint32, error) {
	const file = "/proc/devices"
	raw, err := f.read(file)
	if err != nil {
		return 0, fmt.Errorf("reading the major numbers of device drivers: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		number, device, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if strings.HasPrefix(number, "Block") {
			break
		}
		if device != name {
			continue
		}
		major, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", file, err)
		}
		return uint32(major), nil
	}
	return 0, fmt.Errorf("finding %s in %s: %w; reload the NVIDIA kernel module", name, file, gpu.ErrNotFound)
}
