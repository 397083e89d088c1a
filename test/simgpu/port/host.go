package port

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// DriverRoot is where a Host has its driver, as the host sees it.
const DriverRoot = "/run/nvidia/driver"

// Host is a machine around a node of the model: it knows where the driver is installed and where the GPUs sit. It is an
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

// Install puts the files of a driver version on the machine in place of those that are there; none for an empty version.
func (h *Host) Install(version model.DriverVersion) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.installed = version
	h.writes++
}

// FindDriver returns the installation, gpu.ErrDriverNotLoaded where there is none.
func (h *Host) FindDriver(explicit string) (hostfs.DriverRoot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.installed == "" || (explicit != "" && explicit != DriverRoot) {
		return hostfs.DriverRoot{}, fmt.Errorf("looking for libnvidia-ml.so.1 below %s: %w", DriverRoot, gpu.ErrDriverNotLoaded)
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

// PCI tells where a GPU of the node sits.
func (h *Host) PCI(busID string) gpu.PCI {
	for _, id := range h.node.Identities() {
		if id.PCI.String() == busID {
			return gpu.PCI{BusID: busID, Root: id.PCIRoot, NUMANode: id.NUMA}
		}
	}
	return gpu.PCI{BusID: busID, NUMANode: -1}
}

// CharDevice looks at a device node of the machine; the nodes of all GPUs are there.
func (h *Host) CharDevice(path string) (hostfs.CharDevice, error) {
	nodes := map[string][2]uint32{
		"/dev/nvidiactl": {195, 255}, "/dev/nvidia-modeset": {195, 254}, "/dev/nvidia-uvm": {237, 0}, "/dev/nvidia-uvm-tools": {237, 1},
	}
	for _, id := range h.node.Identities() {
		nodes[fmt.Sprintf("/dev/nvidia%d", id.Minor)] = [2]uint32{195, uint32(id.Minor)}
	}
	numbers, ok := nodes[path]
	if !ok {
		return hostfs.CharDevice{}, fmt.Errorf("looking at device node %s: %w", path, gpu.ErrNotFound)
	}
	return hostfs.CharDevice{Path: path, Major: numbers[0], Minor: numbers[1]}, nil
}

// Open opens the driver. Like a process, the machine stays with the first library that was opened.
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
