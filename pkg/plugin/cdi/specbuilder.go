package cdi

import (
	"errors"
	"fmt"
	"slices"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// SpecRequest asks for the spec of one claim.
type SpecRequest struct {
	// Record contains the claim's results and the names of their devices in the spec.
	Record *checkpoint.Record
	// Edits are the edits of steps and extensions for the devices.
	Edits []DeviceEdits
	// Marks are appended to the types of devices in the variables that prism-hook reads, by the device's name in the spec.
	Marks map[string]string
	// Made reports whether a path of the host in Edits is created before the spec is written; nil: none is.
	Made func(hostPath string) bool
}

// Present is the node's present state that specs depend on.
type Present struct {
	// Node contains no driver version while there is no driver.
	Node *gpu.Node
	// Common contains the edits for every container with a GPU; nil without a driver. It is not changed.
	Common *specs.ContainerEdits
	// DevRoot is the host's directory that contains "dev": "/" or the driver's own root.
	DevRoot string
	// Extra are further device nodes, and ExtraMounts further mounts, for every container with a GPU.
	Extra       []DeviceNode
	ExtraMounts []*specs.Mount
}

// SpecBuilder builds specs from the present state of the node. It remembers nothing about device nodes, because their numbers may change
// whenever a driver is loaded.
type SpecBuilder struct {
	// Present is called once per spec.
	Present func() Present
	// Stat returns the numbers of the host's character device; gpu.ErrNotFound if it is missing.
	Stat func(hostPath string) (major, minor int64, err error)
	// Capabilities returns the device nodes that a MIG device needs besides its GPU's, by the GPU's minor number; gpu.ErrNotFound if the
	// MIG device does not exist.
	Capabilities func(minor int, id gpu.MIGIdentity) ([]DeviceNode, error)
	// Monitoring returns the device node with which programs see all MIG devices of the node; gpu.ErrNotFound if the driver does not
	// provide it.
	Monitoring func() (DeviceNode, error)
	// Graphics returns the paths of the device nodes for graphics on the GPU at a PCI address. Nodes that are missing below the driver's
	// dev are left out. Nil: containers get none.
	Graphics func(busID string) ([]string, error)
	// Types are further types of devices whose containers get the device node of the GPU.
	Types []gpu.DeviceType
	// Exists returns gpu.ErrNotFound if the path does not exist on the host. It is called for the paths in Edits.
	Exists func(hostPath string) error
}

// DeviceError says why one device of a request cannot be prepared.
type DeviceError struct {
	// Device is the name in the spec.
	Device string
	// Edit: the cause is an edit of a step, not the device.
	Edit bool
	Err  error
}

// Error returns only the cause: the caller knows a better name of the device.
func (e *DeviceError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DeviceError) Unwrap() error { return e.Err }

// The control nodes that every CUDA process opens, and the ones that only some tools open.
var (
	optionalNodes = []string{"/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}
)

// Build builds the spec. *DeviceError: the GPU or a device node of a device does not exist, or an edit of a step is not possible.
// gpu.ErrDriverNotLoaded: there is no driver.
func (b *SpecBuilder) Build(request SpecRequest) (*specs.Spec, error) {
	r, present := request.Record, b.Present()
	if present.Common == nil {
		return nil, fmt.Errorf("building the CDI spec of claim %s: %w", r.Claim.UID, gpu.ErrDriverNotLoaded)
	}
	common := *present.Common
	common.Mounts = slices.Concat(common.Mounts, present.ExtraMounts)
	c := Claim{UID: r.Claim.UID, Kind: r.CDI.Kind, Common: &common}
	for i := range r.Results {
		d, err := b.device(present, r.CDI.Devices[i], &r.Results[i])
		if err != nil {
			return nil, &DeviceError{Device: r.CDI.Devices[i], Err: err}
		}
		d.Env = append(d.Env, mark(d.Name, &r.Results[i], request.Marks[d.Name])...)
		c.Devices = append(c.Devices, d)
	}
	if err := b.addControl(&c, present); err != nil {
		return nil, err
	}
	if err := b.edits(&c, request); err != nil {
		return nil, err
	}
	return Join(c)
}

// addControl adds the control nodes of the driver, and the further device nodes for every container with a GPU. Claims without a device node
// get nothing of the driver.
func (b *SpecBuilder) addControl(c *Claim, present Present) error {
	if !slices.ContainsFunc(c.Devices, func(d Device) bool { return len(d.Nodes) > 0 }) {
		c.Common = &specs.ContainerEdits{}
		return nil
	}
	control, err := b.control(present.DevRoot)
	c.Control = append(control, present.Extra...)
	return err
}

// control finds the control nodes of the driver.
func (b *SpecBuilder) control(devRoot string) (nodes []DeviceNode, err error) {
	for _, path := range gpu.ControlNodes {
		node, err := b.node(devRoot, path)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	return b.addPresent(nodes, devRoot, optionalNodes)
}

// addPresent adds the device nodes that exist.
func (b *SpecBuilder) addPresent(nodes []DeviceNode, devRoot string, paths []string) ([]DeviceNode, error) {
	for _, path := range paths {
		node, err := b.node(devRoot, path)
		if errors.Is(err, gpu.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// monitor finds the device nodes of all GPUs of the node that answer, and the device node with which programs see all their MIG devices.
func (b *SpecBuilder) monitor(present Present, name string) (Device, error) {
	d := Device{Name: name}
	for i := range present.Node.GPUs {
		g := &present.Node.GPUs[i]
		if g.Lost {
			continue
		}
		node, err := b.node(present.DevRoot, g.DeviceNode())
		if err != nil {
			return Device{}, err
		}
		d.Nodes = append(d.Nodes, node)
	}
	if len(d.Nodes) == 0 {
		return Device{}, fmt.Errorf("no GPU on this node: %w", gpu.ErrNotFound)
	}
	switch node, err := b.Monitoring(); {
	case err == nil:
		d.Nodes = append(d.Nodes, node)
	case !errors.Is(err, gpu.ErrNotFound):
		return Device{}, err
	}
	return d, nil
}

// mark returns the variable by which prism-hook detects that a container uses the device; none for devices that may be added to any other.
func mark(device string, r *checkpoint.Result, more string) []string {
	if r.Admin || !r.Type.UsesGPU() {
		return nil
	}
	return []string{protocol.Mark(device) + "=" + string(r.Type) + more}
}

// device finds the device nodes of one result.
func (b *SpecBuilder) device(present Present, name string, result *checkpoint.Result) (Device, error) {
	if result.Type == gpu.TypeMonitor && result.GPUUUID == "" {
		return b.monitor(present, name)
	}
	for i := range present.Node.GPUs {
		g := &present.Node.GPUs[i]
		if g.UUID != result.GPUUUID {
			continue
		}
		switch {
		case result.Type == gpu.TypePerfmon:
			return perfmon(name, g), nil
		case result.Type.EntireGPU() || result.Type == gpu.TypeMonitor || slices.Contains(b.Types, result.Type):
			nodes, err := b.ofGPU(present.DevRoot, g, result.Type != gpu.TypeMonitor)
			return Device{Name: name, Nodes: nodes}, err
		case result.Type == gpu.TypeMIG:
			nodes, err := b.ofGPU(present.DevRoot, g, result.MIG != nil && gpu.HasGraphics(result.MIG.Name))
			if err != nil {
				return Device{}, err
			}
			var id gpu.MIGIdentity
			if result.MIG != nil {
				id = result.MIG.Identity
			}
			capabilities, err := b.Capabilities(g.Minor, id)
			return Device{Name: name, Nodes: append(nodes, capabilities...)}, err
		default:
			return Device{}, &gpu.UnsupportedError{Feature: fmt.Sprintf("a device of type %q", result.Type), Needs: "a newer version of the driver"}
		}
	}
	return Device{}, fmt.Errorf("GPU %s is not on this node: %w", result.GPUUUID, gpu.ErrNotFound)
}

// ofGPU finds the device node of a GPU, and its device nodes for graphics if there are any.
func (b *SpecBuilder) ofGPU(devRoot string, g *gpu.GPU, graphics bool) ([]DeviceNode, error) {
	node, err := b.node(devRoot, g.DeviceNode())
	if err != nil {
		return nil, err
	}
	nodes := []DeviceNode{node}
	if !graphics || b.Graphics == nil {
		return nodes, nil
	}
	paths, err := b.Graphics(g.PCI.BusID)
	if err != nil {
		return nil, err
	}
	return b.addPresent(nodes, devRoot, paths)
}

// node finds the device node on the host. If the driver's root contains its own dev/, it prefers the node in the host's /dev if both are
// the same device: for a container in a user namespace, runc ignores the path on the host and uses the path in the container.
func (b *SpecBuilder) node(devRoot, path string) (DeviceNode, error) {
	if devRoot == "/" {
		devRoot = ""
	}
	major, minor, err := b.Stat(devRoot + path)
	if err != nil {
		return DeviceNode{}, err
	}
	node := DeviceNode{Path: path, HostPath: path, Major: major, Minor: minor}
	if devRoot != "" {
		if onHost, minorOnHost, err := b.Stat(path); err != nil || onHost != major || minorOnHost != minor {
			node.HostPath = devRoot + path
		}
	}
	return node, nil
}

// DriverNode returns the host's path of the first device node that a container with these GPUs gets from the dev/ of the driver, because it
// is missing in the host's /dev or is another device there; "" if there is none. Build reports missing nodes. An empty UUID means all GPUs.
func (b *SpecBuilder) DriverNode(gpus []gpu.UUID) string {
	present := b.Present()
	if present.DevRoot == "/" || present.DevRoot == "" {
		return ""
	}
	paths := slices.Concat(gpu.ControlNodes, optionalNodes)
	for i := range present.Node.GPUs {
		if g := &present.Node.GPUs[i]; slices.Contains(gpus, g.UUID) || slices.Contains(gpus, "") {
			paths = append(paths, g.DeviceNode())
		}
	}
	for _, path := range paths {
		if node, err := b.node(present.DevRoot, path); err == nil && node.HostPath != path {
			return node.HostPath
		}
	}
	return ""
}
