package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// CapabilityMajor is the major number of nvidia-caps in a sandbox; a node uses its own.
const CapabilityMajor = 236

// CapabilityNode is the name of the device node of a capability, below /dev.
func CapabilityNode(capability uint32) string {
	return fmt.Sprintf("nvidia-caps/nvidia-cap%d", capability)
}

// capability is a file below /proc/driver/nvidia/capabilities and its device node.
type capability struct {
	minor uint32
	mode  uint32
}

// capabilities lists the current capabilities of a node by file; none without a driver or a board with MIG.
func capabilities(node *model.Node) map[string]capability {
	list := map[string]capability{}
	snapshot, boards := node.Snapshot(), node.Boards()
	for i, gpu := range snapshot.GPUs {
		if !snapshot.Driver.Loaded || !boards[i].MIG.Capable() {
			continue
		}
		list["mig/config"] = capability{model.ConfigCapability, 0o400}
		list["mig/monitor"] = capability{model.MonitorCapability, 0o444}
		for _, d := range gpu.MIGDevices {
			dir := fmt.Sprintf("gpu%d/mig/gi%d", gpu.Minor, d.GPUInstance)
			list[dir+"/access"] = capability{model.GPUInstanceCapability(gpu.Minor, d.GPUInstance), 0o444}
			if d.ComputeInstance != nil {
				minor := model.ComputeInstanceCapability(gpu.Minor, d.GPUInstance, *d.ComputeInstance)
				list[fmt.Sprintf("%s/ci%d/access", dir, *d.ComputeInstance)] = capability{minor, 0o444}
			}
		}
	}
	return list
}

func (p Paths) capabilityDir() string { return filepath.Join(p.ProcDriver, "capabilities") }

func (p Paths) capabilityNodes() string { return filepath.Join(p.Dev, "nvidia-caps") }

// migMinors lists all possible capabilities with the minors of their device nodes, like /proc/driver/nvidia-caps/mig-minors.
func migMinors() string {
	var b strings.Builder
	fmt.Fprintf(&b, "config %d\nmonitor %d\n", model.ConfigCapability, model.MonitorCapability)
	for gpu := range model.MaxGPUs {
		for gi := range uint32(model.MaxGPUInstances) {
			fmt.Fprintf(&b, "gpu%d/gi%d/access %d\n", gpu, gi, model.GPUInstanceCapability(gpu, gi))
			for ci := range uint32(model.MaxComputeInstances) {
				fmt.Fprintf(&b, "gpu%d/gi%d/ci%d/access %d\n", gpu, gi, ci, model.ComputeInstanceCapability(gpu, gi, ci))
			}
		}
	}
	return b.String()
}

// capsDir replaces /proc/driver/nvidia-caps.
func (p Paths) capsDir() string { return filepath.Join(filepath.Dir(p.ProcDriver), "nvidia-caps") }

// ShowCapabilities updates the capability files and their device nodes to the current instances. A machine without the nvidia-caps driver
// has none. Calls must not overlap.
func (p Paths) ShowCapabilities(node *model.Node) error {
	number, err := major(p.ProcDevices, "nvidia-caps")
	if err != nil {
		return nil //nolint:nilerr // this driver creates no capability nodes
	}
	wanted := capabilities(node)
	failed := []error{p.dropCapabilities(wanted)}
	for name, c := range wanted {
		failed = append(failed, p.showCapability(name, c, number))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("showing MIG capabilities: %w", err)
	}
	return nil
}

func (p Paths) showCapability(name string, c capability, number uint32) error {
	file := filepath.Join(p.capabilityDir(), name)
	if _, err := os.Lstat(file); err == nil {
		return nil
	}
	node := filepath.Join(p.Dev, CapabilityNode(c.minor))
	text := fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: %d\nDeviceFileModify: 1\n", c.minor, c.mode)
	err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.MkdirAll(filepath.Dir(node), 0o755))
	if err != nil {
		return err
	}
	err = unix.Mknod(node, unix.S_IFCHR|c.mode, int(unix.Mkdev(number, c.minor)))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making device node %s: %w", node, err)
	}
	return os.WriteFile(file, []byte(text), 0o444)
}

// dropCapabilities removes the unwanted files, their device nodes, and directories that become empty. The nodes of capabilities that every
// driver has stay, like the nodes of GPUs: a process that checks for them while a driver is loaded must not conclude that it runs in a
// container.
func (p Paths) dropCapabilities(wanted map[string]capability) error {
	nodes := map[string]bool{}
	for _, minor := range []uint32{model.ConfigCapability, model.MonitorCapability} {
		nodes[filepath.Base(CapabilityNode(minor))] = true
	}
	for _, c := range wanted {
		nodes[filepath.Base(CapabilityNode(c.minor))] = true
	}
	return p.keepCapabilities(wanted, nodes)
}

// removeCapabilities removes all capabilities.
func (p Paths) removeCapabilities() error { return p.keepCapabilities(nil, nil) }

func (p Paths) keepCapabilities(wanted map[string]capability, nodes map[string]bool) error {
	var failed []error
	drop := func(root string, keep func(relative string) bool) {
		var dirs []string
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			relative := strings.TrimPrefix(path, root+"/")
			if entry.IsDir() {
				dirs = append(dirs, path)
			} else if !keep(relative) {
				return os.Remove(path)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, err)
		}
		for i := len(dirs) - 1; i >= 0; i-- {
			if err := os.Remove(dirs[i]); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
				failed = append(failed, err)
			}
		}
	}
	drop(p.capabilityDir(), func(name string) bool { _, ok := wanted[name]; return ok })
	drop(p.capabilityNodes(), func(name string) bool { return nodes[name] || !strings.HasPrefix(name, "nvidia-cap") })
	return errors.Join(failed...)
}
