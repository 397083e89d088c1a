package cdi

import (
	"errors"
	"fmt"
	"slices"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Order asks for the spec of one claim.
type Order struct {
	ClaimUID, Kind string
	// Devices are in the order of the claim's allocation results.
	Devices []Ordered
}

// Ordered is one device of an order.
type Ordered struct {
	// Name is the device's name in the spec.
	Name string
	// GPU is the physical GPU behind it; empty for a monitor device of all GPUs.
	GPU gpu.UUID
	// Type is the kind of device.
	Type gpu.DeviceType
	// MIG is which MIG device it is, for that type.
	MIG gpu.MIGIdentity
}

// Present is what the node can give to containers now.
type Present struct {
	// Node has no driver version while there is no driver.
	Node *gpu.Node
	// Common are the edits that every container with a GPU gets; nil without a driver. Not written to.
	Common *specs.ContainerEdits
	// DevRoot is the host's directory that holds "dev": "/" or the driver's own root.
	DevRoot string
	// Beside are device nodes that every container with a GPU gets too, and BesideMounts are mounts.
	Beside       []Node
	BesideMounts []*specs.Mount
}

// Author makes specs from what the node has at that moment; nothing about a device node is remembered, because numbers may
// change whenever a driver is loaded.
type Author struct {
	// Present is asked once per spec.
	Present func() Present
	// Stat returns the numbers of the host's character device; gpu.ErrNotFound when it is missing.
	Stat func(hostPath string) (major, minor int64, err error)
	// Capabilities returns the device nodes that a MIG device needs besides its GPU's, by the GPU's minor number; gpu.ErrNotFound
	// when there is no such MIG device.
	Capabilities func(minor int, id gpu.MIGIdentity) ([]Node, error)
	// Monitoring returns the device node with which programs see all MIG devices of the node; gpu.ErrNotFound where the driver has none.
	Monitoring func() (Node, error)
}

// DeviceError says which device of an order cannot be given, and why.
type DeviceError struct {
	// Device is the name in the spec.
	Device string
	Err    error
}

// Error is the cause alone: who asked knows the device by a better name.
func (e *DeviceError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DeviceError) Unwrap() error { return e.Err }

// The control nodes every CUDA process opens, and those that only some tools do.
var (
	controlNodes  = []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}
	optionalNodes = []string{"/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}
)

// Build makes the spec for the order. A device whose GPU or device node is not there now is a *DeviceError; without a driver
// the error is gpu.ErrDriverNotLoaded.
func (a *Author) Build(o Order) (*specs.Spec, error) {
	present := a.Present()
	if present.Common == nil {
		return nil, fmt.Errorf("joining the CDI spec of claim %s: %w", o.ClaimUID, gpu.ErrDriverNotLoaded)
	}
	common := *present.Common
	common.Mounts = slices.Concat(common.Mounts, present.BesideMounts)
	c := Claim{UID: o.ClaimUID, Kind: o.Kind, Common: &common}
	for _, ordered := range o.Devices {
		d, err := a.device(present, ordered)
		if err != nil {
			return nil, &DeviceError{Device: ordered.Name, Err: err}
		}
		c.Devices = append(c.Devices, d)
	}
	for _, path := range controlNodes {
		node, err := a.node(present.DevRoot, path)
		if err != nil {
			return nil, err
		}
		c.Control = append(c.Control, node)
	}
	for _, path := range optionalNodes {
		node, err := a.node(present.DevRoot, path)
		if errors.Is(err, gpu.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		c.Control = append(c.Control, node)
	}
	c.Control = append(c.Control, present.Beside...)
	return Join(c)
}

// monitor finds what shows all GPUs of the node and all their MIG devices.
func (a *Author) monitor(present Present, name string) (Device, error) {
	d := Device{Name: name}
	for i := range present.Node.GPUs {
		node, err := a.node(present.DevRoot, devicePath(&present.Node.GPUs[i]))
		if err != nil {
			return Device{}, err
		}
		d.Nodes = append(d.Nodes, node)
	}
	if len(d.Nodes) == 0 {
		return Device{}, fmt.Errorf("there is no GPU on this node now: %w", gpu.ErrNotFound)
	}
	switch node, err := a.Monitoring(); {
	case err == nil:
		d.Nodes = append(d.Nodes, node)
	case !errors.Is(err, gpu.ErrNotFound):
		return Device{}, err
	}
	return d, nil
}

func devicePath(g *gpu.GPU) string { return fmt.Sprintf("/dev/nvidia%d", g.Minor) }

// device finds what one device brings along.
func (a *Author) device(present Present, o Ordered) (Device, error) {
	if o.Type == gpu.TypeMonitor && o.GPU == "" {
		return a.monitor(present, o.Name)
	}
	for i := range present.Node.GPUs {
		g := &present.Node.GPUs[i]
		if g.UUID != o.GPU {
			continue
		}
		switch o.Type {
		case gpu.TypeGPU, gpu.TypeTimeSlice, gpu.TypeMonitor:
			node, err := a.node(present.DevRoot, devicePath(g))
			return Device{Name: o.Name, Nodes: []Node{node}}, err
		case gpu.TypeMIG:
			node, err := a.node(present.DevRoot, devicePath(g))
			if err != nil {
				return Device{}, err
			}
			capabilities, err := a.Capabilities(g.Minor, o.MIG)
			return Device{Name: o.Name, Nodes: append([]Node{node}, capabilities...)}, err
		default:
			return Device{}, &gpu.UnsupportedError{Feature: fmt.Sprintf("a device of type %q", o.Type), Needs: "a newer version of the driver"}
		}
	}
	return Device{}, fmt.Errorf("GPU %s is not on this node now: %w", o.GPU, gpu.ErrNotFound)
}

// node looks the device node up on the host.
func (a *Author) node(devRoot, path string) (Node, error) {
	hostPath := path
	if devRoot != "/" && devRoot != "" {
		hostPath = devRoot + path
	}
	major, minor, err := a.Stat(hostPath)
	if err != nil {
		return Node{}, err
	}
	return Node{Path: path, HostPath: hostPath, Major: major, Minor: minor}, nil
}
