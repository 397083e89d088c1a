package publish

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// CapGPUs counts the GPUs that a monitor device shows.
const CapGPUs = "gpus"

// monitor publishes the device through which all GPUs of a node are seen. It is slim: the scheduler may evaluate it for every pod that
// waits for a GPU.
type monitor struct{}

// Type is gpu.TypeMonitor.
func (monitor) Type() gpu.DeviceType { return gpu.TypeMonitor }

// Attributes are the type and the driver's versions: nothing else is the same for all GPUs of a node.
func (monitor) Attributes(_ gpu.Device, common Attributes, _ string) Attributes {
	return keep(common, AttrType, AttrDriverVersion, AttrCUDADriverVersion)
}

// Capacities are the number of the node's GPUs and their memory.
func (monitor) Capacities(_ gpu.Device, node *gpu.Node, _ string) Capacities {
	var memory uint64
	for i := range node.GPUs {
		memory += node.GPUs[i].Capacity.MemoryBytes
	}
	return Capacities{
		CapMemory: quantity(memory, resource.BinarySI),
		CapGPUs:   quantity(uint64(len(node.GPUs)), resource.DecimalSI),
	}
}

// Counters are none.
func (monitor) Counters(gpu.Device, Counters) Counters { return nil }

// Compare finds no order: there is one per node.
func (monitor) Compare(_, _ gpu.Device) int { return 0 }
