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

const versionText = `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (simgpu@prism)
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)
`

// paramsText are the parameters of a module that does not manage device files, a common setting. With the default, a hook of the NVIDIA
// Container Toolkit would change the file inside the container, which does not exist there: the /proc of containers is the kernel's own.
const paramsText = `ResmanDebugLevel: 4294967295
RmLogonRC: 1
ModifyDeviceFiles: 0
DeviceFileUID: 0
DeviceFileGID: 0
DeviceFileMode: 438
InitializeSystemMemoryAllocations: 1
UsePageAttributeTable: 4294967295
EnableMSI: 1
EnablePCIeGen3: 0
MemoryPoolSize: 0
EnableGpuFirmware: 18
GrdmaPciTopoCheckOverride: 0
RegistryDwords: ""
RmMsg: ""
`

const informationText = "Model: \t\t %s\nIRQ:   \t\t %d\nGPU UUID: \t %s\nVideo BIOS: \t %s\n" +
	"Bus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t %s\n" +
	"Device Minor: \t %d\nGPU Firmware: \t %s\nGPU Excluded:\t No\n"

// proc writes the files of the loaded kernel module.
func (in *Install) proc(node *model.Node) error {
	version, _ := node.Driver()
	dir := in.Paths.ProcDriver
	files := map[string]string{
		"version": fmt.Sprintf(versionText, version),
		"params":  paramsText,
	}
	boards := node.Boards()
	for i, gpu := range node.Identities() {
		product := boards[i].Product
		files[filepath.Join("gpus", gpu.PCI.String(), "information")] = fmt.Sprintf(informationText,
			product.Name, 64+i, gpu.UUID, product.VBIOS, gpu.PCI, gpu.Minor, version)
	}
	for name, text := range files {
		if err := in.Files.file(filepath.Join(dir, name), text, 0o444); err != nil {
			return err
		}
	}
	if err := in.module(); err != nil {
		return err
	}
	if _, err := major(in.Paths.ProcDevices, "nvidia-caps"); err != nil {
		return nil //nolint:nilerr // this driver creates no capability nodes
	}
	return in.Files.file(filepath.Join(in.Paths.capsDir(), "mig-minors"), migMinors(), 0o444)
}

// module creates the sysfs directory of the loaded module. As in sysfs, inode numbers are not reused, so the directories of earlier loads
// are renamed instead of removed.
func (in *Install) module() error {
	if in.Paths.Module == "" {
		return nil
	}
	if in.loads > 0 {
		in.loads++
		return in.linkLoad(in.loads)
	}
	for n := 1; ; n++ {
		if _, err := os.Lstat(in.loadDir(n)); errors.Is(err, fs.ErrNotExist) {
			return in.linkLoad(n)
		}
	}
}

func (in *Install) loadDir(n int) string { return fmt.Sprintf("%s-%d", in.Paths.Module, n) }

// linkLoad links the n-th directory as the directory of the loaded module.
func (in *Install) linkLoad(n int) error {
	dir := in.loadDir(n)
	return errors.Join(in.Files.dir(dir), in.Files.link(in.Paths.Module, filepath.Base(dir)))
}

// CountLoads makes the next loads use the directories of the first ones again, so that a test that repeats its actions sees the same inode
// numbers. The module must be unloaded.
func (in *Install) CountLoads() { in.loads = 1 }

// UnloadProc removes the files of the kernel module.
func (in *Install) UnloadProc() error {
	shown := in.Paths.dropCapabilities(nil)
	err := in.Files.removeWhere(func(path string) bool {
		return path == in.Paths.ProcDriver || below(path, in.Paths.ProcDriver) || path == in.Paths.capsDir() || below(path, in.Paths.capsDir()) ||
			path == in.Paths.Module && path != ""
	})
	return errors.Join(shown, err, in.Save())
}

// LoadProc creates the files of the kernel module again.
func (in *Install) LoadProc(node *model.Node) error {
	if err := in.proc(node); err != nil {
		return err
	}
	return in.Save()
}

// pci writes the sysfs files of the GPUs and of the bridges above them.
func (in *Install) pci(node *model.Node) error {
	if err := in.ownSysDevices(node.Identities()); err != nil {
		return err
	}
	boards := node.Boards()
	for i, gpu := range node.Identities() {
		bridge := filepath.Join(gpu.PCIRoot, gpu.RootPort.String())
		dir := filepath.Join(in.Paths.sysDevices(), bridge, gpu.PCI.String())
		for name, text := range pciFiles(boards[i].Product, gpu) {
			if err := in.Files.file(filepath.Join(dir, name), text, 0o444); err != nil {
				return err
			}
		}
		for name, minor := range drmNodes(gpu) {
			if err := in.Files.file(filepath.Join(dir, "drm", name, "dev"), fmt.Sprintf("%d:%d\n", drmMajor, minor), 0o444); err != nil {
				return err
			}
		}
		link := filepath.Join(in.Paths.PCI, gpu.PCI.String())
		if err := in.Files.link(link, filepath.Join("../../../devices", bridge, gpu.PCI.String())); err != nil {
			return err
		}
	}
	return nil
}

const pciVendor = 0x10de

func pciFiles(product model.Product, gpu model.Identity) map[string]string {
	device, subsystem := product.PCIDevice>>16, product.PCISubsys>>16
	config := make([]byte, 64)
	config[0], config[1] = pciVendor&0xff, pciVendor>>8
	config[2], config[3] = byte(device), byte(device>>8)
	return map[string]string{
		"vendor":             fmt.Sprintf("0x%04x\n", pciVendor),
		"device":             fmt.Sprintf("0x%04x\n", device),
		"subsystem_vendor":   fmt.Sprintf("0x%04x\n", product.PCISubsys&0xffff),
		"subsystem_device":   fmt.Sprintf("0x%04x\n", subsystem),
		"class":              "0x030200\n",
		"revision":           "0xa1\n",
		"numa_node":          fmt.Sprintf("%d\n", gpu.NUMA),
		"current_link_width": "16\n",
		"max_link_width":     "16\n",
		"resource":           strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", 13),
		"config":             string(config),
	}
}

// ownSysDevices mounts a /sys/devices in which directories can be created,
// which sysfs does not allow. The kernel's entries stay visible, except
// PCIe roots with the number of a simulated one.
func (in *Install) ownSysDevices(gpus []model.Identity) error {
	dir := in.Paths.sysDevices()
	if err := in.Files.dir(dir); err != nil {
		return err
	}
	mounts, err := readMounts()
	if err != nil || mountOf(mounts, dir).kind != "sysfs" {
		return err
	}
	hidden := map[string]bool{}
	for _, gpu := range gpus {
		hidden[gpu.PCIRoot] = true
	}
	return in.coverSysfs(dir, hidden)
}

func (in *Install) coverSysfs(dir string, hidden map[string]bool) error {
	kernel := filepath.Join(in.Paths.runDir(), "sysfs-devices")
	if err := in.Files.dir(kernel); err != nil {
		return err
	}
	if err := bind(dir, kernel); err != nil {
		return err
	}
	defer unix.Unmount(kernel, unix.MNT_DETACH) //nolint:errcheck // the entries that stay are bind-mounted below
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("covering %s: %w", dir, err)
	}
	in.Files.Mounts = append(in.Files.Mounts, dir)
	entries, err := os.ReadDir(kernel)
	if err != nil {
		return fmt.Errorf("keeping the kernel's %s: %w", dir, err)
	}
	for _, entry := range entries {
		if hidden[entry.Name()] {
			continue
		}
		if err := showAgain(filepath.Join(kernel, entry.Name()), filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func showAgain(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return fmt.Errorf("showing %s again: %w", to, err)
	}
	return bind(from, to)
}

// bind mounts are private: unmounting one must not propagate to its source.
func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("binding %s to %s: %w", from, to, err)
	}
	if err := unix.Mount("", to, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("binding %s to %s: %w", from, to, err)
	}
	return nil
}
