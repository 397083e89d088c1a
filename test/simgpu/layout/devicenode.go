package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

const (
	nvidiaMajor  = 195
	controlMinor = 255
	modesetMinor = 254
	drmMajor     = 226
	// firstRender is the minor number of the first render node.
	firstRender = 128
)

// sandboxDevices is /proc/devices of a sandbox; a node uses its own.
const sandboxDevices = `Character devices:
  1 mem
195 nvidia
195 nvidia-modeset
195 nvidiactl
234 nvidia-nvswitch
235 nvidia-caps-imex-channels
236 nvidia-caps
237 nvidia-uvm

Block devices:
`

func (in *Install) procDevices() error {
	if !below(in.Paths.ProcDevices, in.Paths.Root) {
		return nil
	}
	return in.Files.file(in.Paths.ProcDevices, sandboxDevices, 0o444)
}

type deviceNode struct {
	name         string
	major, minor uint32
}

// deviceNodeList lists the device nodes of a node's driver.
func deviceNodeList(paths Paths, gpus []model.Identity) ([]deviceNode, error) {
	uvm, err := major(paths.ProcDevices, "nvidia-uvm")
	if err != nil {
		return nil, err
	}
	nodes := []deviceNode{
		{"nvidiactl", nvidiaMajor, controlMinor},
		{"nvidia-modeset", nvidiaMajor, modesetMinor},
		{"nvidia-uvm", uvm, 0},
		{"nvidia-uvm-tools", uvm, 1},
	}
	for _, gpu := range gpus {
		nodes = append(nodes, deviceNode{gpuNodeName(gpu.Minor), nvidiaMajor, uint32(gpu.Minor)})
		for name, minor := range drmNodes(gpu) {
			nodes = append(nodes, deviceNode{"dri/" + name, drmMajor, minor})
		}
	}
	return nodes, nil
}

// drmNodes returns the device nodes of a GPU for graphics, by their names. The machine's own display uses card0, and no render node.
func drmNodes(gpu model.Identity) map[string]uint32 {
	card, render := uint32(gpu.Ordinal+1), uint32(firstRender+gpu.Ordinal)
	return map[string]uint32{fmt.Sprintf("card%d", card): card, fmt.Sprintf("renderD%d", render): render}
}

func gpuNodeName(minor int) string { return "nvidia" + strconv.Itoa(minor) }

func (in *Install) deviceNodes(node *model.Node) error {
	nodes, err := deviceNodeList(in.Paths, node.Identities())
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := in.Files.charDevice(filepath.Join(in.Paths.Dev, n.name), n.major, n.minor); err != nil {
			return err
		}
	}
	return nil
}

// RemoveDeviceNode removes a device node, as a fault. It must belong to the node.
func (in *Install) RemoveDeviceNode(name string) error {
	path := filepath.Join(in.Paths.Dev, name)
	if !slices.Contains(in.Files.Made, path) {
		return fmt.Errorf("removing device node %s: no such device on the GPU node", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing device node: %w", err)
	}
	return nil
}

// RestoreDeviceNodes creates all missing device nodes.
func (in *Install) RestoreDeviceNodes(node *model.Node) error {
	nodes, err := deviceNodeList(in.Paths, node.Identities())
	if err != nil {
		return err
	}
	for _, n := range nodes {
		path := filepath.Join(in.Paths.Dev, n.name)
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		if err := in.Files.charDevice(path, n.major, n.minor); err != nil {
			return err
		}
	}
	return in.Save()
}

// GPUDeviceNode is the name of the device node of a GPU by its ordinal.
func GPUDeviceNode(node *model.Node, ordinal int) (string, error) {
	gpus := node.Identities()
	if ordinal < 0 || ordinal >= len(gpus) {
		return "", fmt.Errorf("finding GPU %d: the node has %d", ordinal, len(gpus))
	}
	return gpuNodeName(gpus[ordinal].Minor), nil
}
