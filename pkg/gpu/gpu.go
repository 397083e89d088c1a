package gpu

import (
	"strconv"
	"strings"
)

// UUID is a physical GPU's identity as NVML prints it, "GPU-" and five groups of hex digits. It survives reboots and slot
// moves.
type UUID string

// digits returns the hex digits of the UUID without prefix and dashes, in lower case.
func (u UUID) digits() string {
	s := strings.ToLower(strings.TrimPrefix(string(u), "GPU-"))
	return strings.ReplaceAll(s, "-", "")
}

// UnknownMinor is the Minor of a GPU whose device node is not known.
const UnknownMinor = -1

// GPU is one physical GPU.
type GPU struct {
	// UUID identifies the GPU.
	UUID UUID
	// ID is the short form that device names carry: the first 8 hex digits of the UUID, more if two GPUs of a node share them. AssignIDs
	// sets it.
	ID string
	// Index is NVML's index; it may change when a GPU is added or lost.
	Index int
	// Minor is the device node's minor number: /dev/nvidia<Minor>; UnknownMinor if the driver does not report it.
	Minor int
	// PCI is the position of the GPU in the machine.
	PCI PCI
	// Product is the model of the GPU.
	Product Product
	// Capacity says how much of it there is.
	Capacity Capacity
	// MIG is how the GPU can be partitioned and how it is now; nil if it cannot be, or if that was not read.
	MIG *MIG
	// MemoryLimits reports whether the GPU memory of a container can be limited.
	MemoryLimits bool
	// MissingNode is the host's path of a device node that is not there and without which no container can use the GPU: its own, or one
	// of ControlNodes; empty if all are there.
	MissingNode string
	// UnifiedMemory: the driver reports no memory of the GPU, which uses the system's. Capacity.MemoryBytes is from elsewhere.
	UnifiedMemory bool
	// Lost: the GPU does not answer, or the driver does not list it any more. All other facts are the last ones that were read.
	Lost bool
}

// ControlNodes are the device nodes that every container with a GPU gets besides the GPU's own.
var ControlNodes = []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}

// DeviceNode is the path of the GPU's device node in a container, and below the directory of the driver's device nodes.
func (g *GPU) DeviceNode() string { return "/dev/nvidia" + strconv.Itoa(g.Minor) }

// HasGPM reports whether the GPU supports GPU performance monitoring, as Hopper and later do. It is assumed if the driver does not report
// the architecture.
func (g *GPU) HasGPM() bool {
	major, _, _ := strings.Cut(g.Product.ComputeCapability, ".")
	n, err := strconv.Atoi(major)
	return err != nil || n >= 9
}

// PCI is a GPU's place in the machine.
type PCI struct {
	// BusID is the address with a four-digit domain in lower case: "0000:3b:00.0".
	BusID string
	// Root is the PCIe root complex, "pci0000:3a"; empty if the machine does not report it.
	Root string
	// NUMANode is the node's number, -1 if the machine does not report it.
	NUMANode int
}

// Product is the model under which a GPU is sold.
type Product struct {
	// Name is NVML's product name: "NVIDIA H100 80GB HBM3".
	Name string
	// Brand is NVML's brand: "Nvidia", "Tesla", "GeForce".
	Brand string
	// Architecture is the family: "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell".
	Architecture string
	// AddressingMode is how the GPU reaches memory of the system: "None", "HMM" or "ATS"; empty if the driver does not report it.
	AddressingMode string
	// ComputeCapability is CUDA's "<major>.<minor>".
	ComputeCapability string
	// MIGCapable reports whether the board can be partitioned.
	MIGCapable bool
}

// Capacity is how much of each engine a GPU has. Zero means that the driver does not report it.
type Capacity struct {
	// MemoryBytes is the framebuffer that NVML reports as total. For a GPU without one it is the value in the node's configuration, else
	// the system's memory.
	MemoryBytes uint64
	// Multiprocessors counts streaming multiprocessors.
	Multiprocessors uint32
	// CopyEngines, Decoders, Encoders, JPEGEngines and OFAEngines count the fixed-function engines.
	CopyEngines, Decoders, Encoders, JPEGEngines, OFAEngines uint32
}

// shortestID is the number of UUID hex digits a device name carries when they are enough to distinguish the node's GPUs.
const shortestID = 8

// AssignIDs sets the ID of every GPU: the shortest prefix of the UUID's digits, at least 8 long, that no other of these
// GPUs shares. GPUs without a twin keep 8 digits whatever the others need, so that a name does not depend on its neighbours.
func AssignIDs(gpus []GPU) {
	for i := range gpus {
		own := gpus[i].UUID.digits()
		n := min(shortestID, len(own))
		for j := range gpus {
			if other := gpus[j].UUID.digits(); j != i && other != own {
				n = max(n, min(commonPrefix(own, other)+1, len(own)))
			}
		}
		gpus[i].ID = own[:n]
	}
}

// commonPrefix counts the leading bytes that a and b share.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
