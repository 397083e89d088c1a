package port

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// DriverRoot is the driver root of a Host.
const DriverRoot = "/run/nvidia/driver"

// Host is the host of a node of the model: driver installation, PCI topology and device nodes. It is an
// inventory.Host, and its Open an inventory.Opener.
type Host struct {
	node *model.Node

	mu        sync.Mutex
	installed model.DriverVersion // empty: no files of a driver
	writes    uint64              // counts installations
	bound     hostfs.FileID
}

// NewHost returns a machine on which the driver of the node is installed.
func NewHost(node *model.Node) *Host {
	h := &Host{node: node}
	version, _ := node.Driver()
	h.Install(version)
	return h
}

// Install replaces the installed driver; an empty version removes it.
func (h *Host) Install(version model.DriverVersion) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.installed = version
	h.writes++
}

// FindDriver returns the installation, gpu.ErrDriverNotLoaded without one.
func (h *Host) FindDriver(explicit string) (hostfs.DriverRoot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.installed == "" || (explicit != "" && explicit != DriverRoot) {
		return hostfs.DriverRoot{}, fmt.Errorf("finding libnvidia-ml.so.1 below %s: %w", DriverRoot, gpu.ErrDriverNotLoaded)
	}
	version := h.installed.String()
	return hostfs.DriverRoot{
		HostPath: DriverRoot, Path: DriverRoot, DevHostPath: "/", Version: version,
		Library:   filepath.Join(DriverRoot, layout.LibDir(), "libnvidia-ml.so."+version),
		LibraryID: hostfs.FileID{Inode: h.writes, Size: 1},
	}, nil
}

// KernelModule returns the version of the loaded driver, empty while it is unloaded.
func (h *Host) KernelModule() string {
	version, loaded := h.node.Driver()
	if !loaded {
		return ""
	}
	return version.String()
}

// DriverLoad identifies the current load of the driver, empty while it is unloaded.
func (h *Host) DriverLoad() string {
	if _, loaded := h.node.Driver(); !loaded {
		return ""
	}
	return strconv.FormatUint(h.node.Loads(), 10)
}

// PCI returns the PCI topology of a GPU.
func (h *Host) PCI(busID string) gpu.PCI {
	for _, id := range h.node.Identities() {
		if id.PCI.String() == busID {
			return gpu.PCI{BusID: busID, Root: id.PCIRoot, NUMANode: id.NUMA}
		}
	}
	return gpu.PCI{BusID: busID, NUMANode: -1}
}

// GPUMinor returns the minor number of a GPU; gpu.ErrNotFound for another address.
func (h *Host) GPUMinor(busID string) (int, error) {
	for _, id := range h.node.Identities() {
		if id.PCI.String() == busID {
			return id.Minor, nil
		}
	}
	return 0, fmt.Errorf("finding the minor number of %s: %w", busID, gpu.ErrNotFound)
}

// systemMemory is the memory of every Host.
const systemMemory = 128 << 30

// SystemMemory returns the memory of the machine.
func (h *Host) SystemMemory() (uint64, error) { return systemMemory, nil }

// MIGNodes returns the device nodes of a GPU instance and of one of its compute instances; gpu.ErrNotFound if
// they do not exist.
func (h *Host) MIGNodes(gpuMinor, gi, ci int) ([]hostfs.CharDevice, error) {
	wanted := migDevice{gpuMinor, gi, ci}
	if slices.Contains(h.migDevices(), wanted) {
		return wanted.nodes(), nil
	}
	return nil, fmt.Errorf("finding the device nodes of compute instance %d of GPU instance %d on GPU %d: %w", ci, gi, gpuMinor, gpu.ErrNotFound)
}

// MIGMonitorNode returns the device node for monitoring all MIG devices; gpu.ErrNotFound if no board supports MIG.
func (h *Host) MIGMonitorNode() (hostfs.CharDevice, error) {
	for _, board := range h.node.Boards() {
		if board.MIG.Capable() {
			return hostfs.CharDevice{
				Path: filepath.Join("/dev", layout.CapabilityNode(model.MonitorCapability)), Major: layout.CapabilityMajor, Minor: model.MonitorCapability,
			}, nil
		}
	}
	return hostfs.CharDevice{}, fmt.Errorf("finding the device node for monitoring MIG devices: %w", gpu.ErrNotFound)
}

// migDevice is a MIG device by the minor of its GPU and the ids of its GPU instance and compute instance.
type migDevice struct{ gpuMinor, gi, ci int }

func (h *Host) migDevices() []migDevice {
	var list []migDevice
	for _, g := range h.node.Snapshot().GPUs {
		for _, d := range g.MIGDevices {
			if d.ComputeInstance != nil {
				list = append(list, migDevice{g.Minor, int(d.GPUInstance), int(*d.ComputeInstance)})
			}
		}
	}
	return list
}

func (d migDevice) nodes() []hostfs.CharDevice {
	gi, ci := uint32(d.gi), uint32(d.ci)
	var nodes []hostfs.CharDevice
	for _, minor := range []uint32{model.GPUInstanceCapability(d.gpuMinor, gi), model.ComputeInstanceCapability(d.gpuMinor, gi, ci)} {
		nodes = append(nodes, hostfs.CharDevice{
			Path: filepath.Join("/dev", layout.CapabilityNode(minor)), Major: layout.CapabilityMajor, Minor: minor,
		})
	}
	return nodes
}

// CharDevice returns a device node: the nodes of all GPUs and of all MIG devices exist.
func (h *Host) CharDevice(path string) (hostfs.CharDevice, error) {
	nodes := map[string][2]uint32{
		"/dev/nvidiactl": {195, 255}, "/dev/nvidia-modeset": {195, 254}, "/dev/nvidia-uvm": {237, 0}, "/dev/nvidia-uvm-tools": {237, 1},
	}
	for _, id := range h.node.Identities() {
		nodes[fmt.Sprintf("/dev/nvidia%d", id.Minor)] = [2]uint32{195, uint32(id.Minor)}
	}
	for _, device := range h.migDevices() {
		for _, n := range device.nodes() {
			nodes[n.Path] = [2]uint32{n.Major, n.Minor}
		}
	}
	numbers, ok := nodes[path]
	if !ok {
		return hostfs.CharDevice{}, fmt.Errorf("checking device node %s: %w", path, gpu.ErrNotFound)
	}
	return hostfs.CharDevice{Path: path, Major: numbers[0], Minor: numbers[1]}, nil
}

// Open opens the driver. Like a process, the host keeps the first library that was opened.
func (h *Host) Open(ctx context.Context, root hostfs.DriverRoot) (inventory.Session, error) {
	h.mu.Lock()
	none := hostfs.FileID{}
	if h.bound != none && h.bound != root.LibraryID {
		h.mu.Unlock()
		return nil, fmt.Errorf("loading %s: %w", root.Library, gpu.ErrDriverReplaced)
	}
	h.bound = root.LibraryID
	h.mu.Unlock()
	session, err := open(ctx, h.node, root.HostPath)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", root.Library, err)
	}
	return session, nil
}
