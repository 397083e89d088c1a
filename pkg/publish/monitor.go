package publish

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// CapGPUs counts the GPUs that a monitor device shows.
const CapGPUs = "gpus"

// monitor is the pool of the node's monitor device, empty without GPUs. The device is slim: the scheduler may look at it for every pod
// that waits for a GPU. It has no counters, and no taint ever: who looks at GPUs takes nothing.
func monitor(node *gpu.Node) resourceslice.Pool {
	if len(node.GPUs) == 0 {
		return resourceslice.Pool{Slices: chunk(nil)}
	}
	d := gpu.Monitor{}
	var memory uint64
	for i := range node.GPUs {
		memory += node.GPUs[i].Capacity.MemoryBytes
	}
	return resourceslice.Pool{Slices: chunk([]resourceapi.Device{{
		Name: string(d.Name()),
		Attributes: attributeSet{
			AttrType:              text(string(d.Type())),
			AttrDriverVersion:     version(node.Driver.Version),
			AttrCUDADriverVersion: version(node.Driver.CUDAVersion),
		},
		Capacity: capacitySet{
			CapMemory: quantity(memory, resource.BinarySI),
			CapGPUs:   quantity(uint64(len(node.GPUs)), resource.DecimalSI),
		},
	}})}
}
