package hostfs

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// capabilityDevice is what the kernel calls the devices of capabilities.
const capabilityDevice = "nvidia-caps"

// MIGNodes returns the device nodes without which no program can use a MIG device: that of the GPU instance and that of the
// compute instance, of the GPU with that minor number. Their numbers are those that the kernel tells; the nodes themselves may
// not have been made yet, which is no error, as a container runtime makes nodes of its own. Without such an instance it is
// gpu.ErrNotFound. A node that stands there with other numbers is an error: programs on the host would open something else.
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

// MIGMonitorNode returns the device node with which programs see every MIG device of the node's GPUs, also those that are made later.
// Numbers are as of MIGNodes; gpu.ErrNotFound where the driver has no such capability.
func (f *FS) MIGMonitorNode() (CharDevice, error) {
	major, err := f.major(capabilityDevice)
	if err != nil {
		return CharDevice{}, err
	}
	return f.capabilityNode(major, "/proc/driver/nvidia/capabilities/mig/monitor")
}

// capabilityNode is the device node of the capability that the file describes.
func (f *FS) capabilityNode(major uint32, file string) (CharDevice, error) {
	minor, err := f.capabilityMinor(file)
	if err != nil {
		return CharDevice{}, err
	}
	node := CharDevice{Path: fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor), Major: major, Minor: minor}
	if there, err := f.CharDevice(node.Path); err == nil && there != node {
		return CharDevice{}, fmt.Errorf("looking at device node %s: it is %d:%d, and the kernel says %d:%d; remove it and run "+
			"nvidia-modprobe -f %s", node.Path, there.Major, there.Minor, node.Major, node.Minor, file)
	}
	return node, nil
}

// capabilityMinor reads the line "DeviceFileMinor: <n>" of a capability.
func (f *FS) capabilityMinor(file string) (uint32, error) {
	raw, err := f.read(file)
	if err != nil {
		return 0, fmt.Errorf("looking for a MIG device's capability: %w", err)
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
	return 0, fmt.Errorf("reading %s: it has no DeviceFileMinor", file)
}

// major finds the number of a character device's driver in /proc/devices.
func (f *FS) major(name string) (uint32, error) {
	const file = "/proc/devices"
	raw, err := f.read(file)
	if err != nil {
		return 0, fmt.Errorf("reading the numbers of device drivers: %w", err)
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
	return 0, fmt.Errorf("looking for %s in %s: %w; load the NVIDIA kernel module anew", name, file, gpu.ErrNotFound)
}
