// Package layout creates the files of a simulated GPU node like a real driver does: the driver root with its libraries and programs, device
// nodes, /proc/driver/nvidia and /sys/bus/pci/devices. It records the created files, and refuses to change directories that belong to the
// machine itself.
package layout

import (
	"path/filepath"
)

// Paths are the directories and files of one node.
type Paths struct {
	Root        string `json:"root"`        // driver root
	Dev         string `json:"dev"`         // device nodes
	ProcDriver  string `json:"procDriver"`  // stands for /proc/driver/nvidia
	PCI         string `json:"pci"`         // stands for /sys/bus/pci/devices
	ProcDevices string `json:"procDevices"` // stands for /proc/devices
	// Module stands for /sys/module/nvidia; empty if it cannot be created, as in sysfs itself.
	Module string `json:"module,omitempty"`
}

// Node returns the paths of a host whose driver is below root.
func Node(root string) Paths {
	return Paths{
		Root:        root,
		Dev:         "/dev",
		ProcDriver:  "/proc/driver/nvidia",
		PCI:         "/sys/bus/pci/devices",
		ProcDevices: "/proc/devices",
	}
}

// Sandbox returns paths that are all below root, for tests.
func Sandbox(root string) Paths {
	return Paths{
		Root:        root,
		Dev:         filepath.Join(root, "dev"),
		ProcDriver:  filepath.Join(root, "proc/driver/nvidia"),
		PCI:         filepath.Join(root, "sys/bus/pci/devices"),
		ProcDevices: filepath.Join(root, "proc/devices"),
		Module:      filepath.Join(root, "sys/module/nvidia"),
	}
}

// Socket is the socket to which the NVML library connects.
func (p Paths) Socket() string { return filepath.Join(p.Root, "run/nvidia-persistenced/socket") }

// runDir contains the files of the simulation itself.
func (p Paths) runDir() string { return filepath.Join(p.Root, "run/simgpu") }

// Control is the socket through which faults are injected.
func (p Paths) Control() string { return filepath.Join(p.runDir(), "control") }

// Log is the daemon's log file.
func (p Paths) Log() string { return filepath.Join(p.runDir(), "log") }

// Manifest is the file that lists the created files.
func (p Paths) Manifest() string { return filepath.Join(p.runDir(), "node.json") }

// sandboxFile informs the NVML library that /dev is not this node's.
func (p Paths) sandboxFile() string { return filepath.Join(p.runDir(), "sandbox") }

// sysDevices stands for /sys/devices.
func (p Paths) sysDevices() string { return filepath.Join(p.PCI, "../../../devices") }

// sandboxed reports whether everything lies below the root.
func (p Paths) sandboxed() bool {
	for _, path := range []string{p.Dev, p.ProcDriver, p.PCI, p.ProcDevices} {
		if !below(path, p.Root) {
			return false
		}
	}
	return true
}

func below(path, dir string) bool {
	relative, err := filepath.Rel(dir, path)
	return err == nil && relative != "." && filepath.IsLocal(relative)
}
