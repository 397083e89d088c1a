package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

const (
	driverName = "gpu.prism.dev"
	nodeName   = "node-1"
	// board is the GPU of the examples, which supports all device types.
	board = "h100-80"
)

// sampleNode is a simulated node with a pre-created MIG device on its last GPU.
func sampleNode() (*gpu.Node, error) {
	machine, err := model.New(model.Uniform(nodeName, board, 4))
	if err != nil {
		return nil, err
	}
	host := port.NewHost(machine)
	root, err := host.FindDriver("")
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	session, err := host.Open(ctx, root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = session.Close() }()
	node := &gpu.Node{}
	if node.Driver, err = session.Driver(ctx); err != nil {
		return nil, err
	}
	gpus, faults, err := session.GPUs(ctx)
	if err != nil || len(faults) > 0 || len(gpus) != 4 {
		return nil, fmt.Errorf("4 simulated GPUs of board %s: %d found, %d faults: %w", board, len(gpus), len(faults), err)
	}
	for i := range gpus {
		gpus[i].PCI = host.PCI(gpus[i].PCI.BusID)
	}
	gpu.AssignIDs(gpus)
	node.GPUs = gpus
	m := node.GPUs[3].MIG
	m.Mode = gpu.MIGMode{Enabled: true, Pending: true}
	m.Instances = []gpu.Instance{{
		ID: 1, Profile: 9, Placement: gpu.Placement{Start: 4, Size: 4}, Compute: []gpu.ComputeInstance{{Slices: 3, UUID: "MIG-c221cf9c-b730-5e16-8818-29658c58f8a3"}},
	}}
	return node, nil
}

// sampleLayout advertises one GPU in each mode; the last one contains a pre-created MIG device for two claims.
func sampleLayout(n *gpu.Node) gpu.Layout {
	const profile = "3g.40gb"
	return gpu.Layout{
		n.GPUs[1].UUID: {Whole: true, MIG: []string{"1g.10gb"}},
		n.GPUs[2].UUID: {TimeSlice: &gpu.Replicas{Count: 4, ShareName: "gpu-shared"}, MPS: sampleMPS()},
		n.GPUs[3].UUID: {Whole: true, MIG: []string{profile}, MIGReplicas: map[string]int{profile: 2}},
	}
}

// sampleMPS defines four shares of equal size.
func sampleMPS() *gpu.MPSSharing {
	const total, mebibyte = 81047 << 20, 1 << 20
	return &gpu.MPSSharing{ShareName: "gpu-mps", MPSSize: gpu.MPSSize{
		Replicas: 4, Threads: gpu.MPSThreads{Total: 100},
		Memory: gpu.MPSMemory{Total: total, Default: total / mebibyte / 4 * mebibyte, Min: mebibyte, Max: total, Step: mebibyte},
	}}
}

// published is one device of each type, as in a ResourceSlice.
type published struct {
	title, pool string
	device      resourceapi.Device
}

// samples runs pkg/plugin/publish on the sample node.
func samples() ([]published, error) {
	node, err := sampleNode()
	if err != nil {
		return nil, err
	}
	resources := publish.Resources(publish.Options{DriverName: driverName, NodeName: nodeName, Layout: sampleLayout(node), Additional: gpu.Additional{Monitor: true, Perfmon: true}}, node)
	var out []published
	for _, want := range []struct {
		title string
		kind  gpu.DeviceType
		gpu   int
	}{
		{"whole GPU", gpu.TypeGPU, 0}, {"MIG device", gpu.TypeMIG, 1}, {"pre-created MIG device", gpu.TypeMIG, 3}, {"MPS share", gpu.TypeMPS, 2},
		{"time-sliced GPU", gpu.TypeTimeSlice, 2}, {"monitor", gpu.TypeMonitor, -1}, {"perfmon", gpu.TypePerfmon, 0},
	} {
		pool, d := find(resources, func(d resourceapi.Device) bool {
			return stringOf(d, publish.AttrType) == string(want.kind) &&
				(want.gpu < 0 || stringOf(d, publish.AttrParentUUID) == string(node.GPUs[want.gpu].UUID))
		})
		if d == nil {
			return nil, fmt.Errorf("the sample node does not publish a %s", want.title)
		}
		out = append(out, published{want.title, pool, *d})
	}
	return out, nil
}

// find returns the first device that fits, and its pool.
func find(resources resourceslice.DriverResources, fits func(resourceapi.Device) bool) (string, *resourceapi.Device) {
	for _, pool := range slices.Sorted(maps.Keys(resources.Pools)) {
		for _, slice := range resources.Pools[pool].Slices {
			if i := slices.IndexFunc(slice.Devices, fits); i >= 0 {
				return pool, &slice.Devices[i]
			}
		}
	}
	return "", nil
}

func stringOf(d resourceapi.Device, name resourceapi.QualifiedName) string {
	if value := d.Attributes[name].StringValue; value != nil {
		return *value
	}
	return ""
}
