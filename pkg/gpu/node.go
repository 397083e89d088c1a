package gpu

import (
	"cmp"
	"slices"
)

// Driver is the NVIDIA kernel driver of the node.
type Driver struct {
	// Version is NVML's driver version: "580.95.05". Empty: no driver is loaded.
	Version string
	// CUDAVersion is the newest CUDA that the driver supports: "13.0".
	CUDAVersion string
}

// Fault is a GPU that the driver lists but that did not answer. It hides no other GPU.
type Fault struct {
	// Index is NVML's index of the GPU.
	Index int
	// UUID and BusID are set if they could still be read.
	UUID  UUID
	BusID string
	// Err is the failure.
	Err error
}

// Recall returns the faults with UUIDs and PCI addresses that could not be read, from GPUs that were there before and are missing now. A
// fault is the missing GPU with its UUID or PCI address. Of the other faults, one is a GPU only if as many are missing: first the one
// with its index, at last the only remaining one. The rest stay as they are: it is not known which GPU they are.
func Recall(faults []Fault, missing []GPU) []Fault {
	recalled, left := slices.Clone(faults), slices.Clone(missing)
	var open []*Fault
	find := func(f *Fault, is func(g GPU) bool) bool {
		i := slices.IndexFunc(left, is)
		if i >= 0 {
			f.UUID, f.BusID = left[i].UUID, cmp.Or(f.BusID, left[i].PCI.BusID)
			left = slices.Delete(left, i, i+1)
		}
		return i >= 0
	}
	for i := range recalled {
		f := &recalled[i]
		named := f.UUID != "" || f.BusID != ""
		if !find(f, func(g GPU) bool { return named && (g.UUID == f.UUID || f.UUID == "" && g.PCI.BusID == f.BusID) }) && !named {
			open = append(open, f)
		}
	}
	if len(open) != len(left) {
		return recalled
	}
	open = slices.DeleteFunc(open, func(f *Fault) bool { return find(f, func(g GPU) bool { return g.Index == f.Index }) })
	if len(open) == 1 {
		find(open[0], func(GPU) bool { return true })
	}
	return recalled
}

// Node is the state of a machine at one moment. Published values are never written to again; a change is a new Node.
type Node struct {
	// Driver is the zero value while no driver is loaded.
	Driver Driver
	// GPUs are the usable ones and the lost ones whose facts are known, in the order of their index, IDs assigned.
	GPUs []GPU
	// Faults are the GPUs that did not answer.
	Faults []Fault
}

// Devices lists every device of a node whose GPUs are advertised whole, in the order of the GPUs. Modes.Devices lists the devices of one
// GPU that is advertised in other modes.
func (n *Node) Devices() []Device {
	devices := make([]Device, 0, len(n.GPUs))
	for i := range n.GPUs {
		devices = append(devices, Whole{GPU: &n.GPUs[i]})
	}
	return devices
}
