package gpu

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
	// UUID and BusID are set where they could still be read.
	UUID  UUID
	BusID string
	// Err says what did not work.
	Err error
}

// Node is what a machine has at one moment. Published values are never written to again; a change is a new Node.
type Node struct {
	// Driver is the zero value while no driver is loaded.
	Driver Driver
	// GPUs are the usable ones in the order of their index, IDs assigned.
	GPUs []GPU
	// Faults are the GPUs that did not answer.
	Faults []Fault
}

// Devices lists every device of a node whose GPUs are advertised whole, in the order of the GPUs. Modes.Devices lists those of one GPU
// that is advertised in other modes.
func (n *Node) Devices() []Device {
	devices := make([]Device, 0, len(n.GPUs))
	for i := range n.GPUs {
		devices = append(devices, Whole{GPU: &n.GPUs[i]})
	}
	return devices
}
