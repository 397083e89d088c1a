package publish_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

const (
	driverName = "gpu.prism.dev"
	nodeName   = "node-1"
)

var architectures = map[model.Architecture]string{
	model.Turing: "Turing", model.Ampere: "Ampere", model.Ada: "Ada Lovelace", model.Hopper: "Hopper", model.Blackwell: "Blackwell",
}

// node is the node that discovery would find on a simulated machine with count GPUs of that board.
func node(t *testing.T, board string, count int) *gpu.Node {
	t.Helper()
	machine, err := model.New(model.Uniform(nodeName, board, count))
	require.NoError(t, err)
	version, loaded := machine.Driver()
	require.True(t, loaded)
	out := &gpu.Node{Driver: gpu.Driver{
		Version:     version.String(),
		CUDAVersion: fmt.Sprintf("%d.%d", version.CUDA()/1000, version.CUDA()%1000/10),
	}}
	boards := machine.Boards()
	for i, id := range machine.Identities() {
		out.GPUs = append(out.GPUs, gpu.GPU{
			UUID: gpu.UUID(id.UUID), Index: i, Minor: id.Minor,
			PCI:      gpu.PCI{BusID: id.PCI.String(), Root: id.PCIRoot, NUMANode: id.NUMA},
			Product:  product(boards[i]),
			Capacity: capacity(boards[i]),
		})
	}
	gpu.AssignIDs(out.GPUs)
	return out
}

func product(b model.Board) gpu.Product {
	return gpu.Product{
		Name: b.Product.Name, Brand: "Nvidia", Architecture: architectures[b.Compute.Architecture],
		ComputeCapability: fmt.Sprintf("%d.%d", b.Compute.Major, b.Compute.Minor), MIGCapable: b.MIG.Capable(),
	}
}

// capacity includes the engines of boards that can be partitioned: drivers report them only by the profile of the largest partition.
func capacity(b model.Board) gpu.Capacity {
	c := gpu.Capacity{MemoryBytes: b.Memory.TotalMiB << 20, Multiprocessors: uint32(b.Compute.Multiprocessors)}
	if b.MIG.Capable() {
		c.CopyEngines, c.Decoders, c.Encoders = uint32(b.Engines.Copy), uint32(b.Engines.Decoder), uint32(b.Engines.Encoder)
		c.JPEGEngines, c.OFAEngines = uint32(b.Engines.JPEG), uint32(b.Engines.OFA)
	}
	return c
}
