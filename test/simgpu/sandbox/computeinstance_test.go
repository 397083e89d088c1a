package sandbox_test

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// computeReport contains the values that go-nvml reads of a 3g instance while compute instances of one compute slice are created in it.
type computeReport struct {
	Placements [][]nvml.ComputeInstancePlacement // of 1c, 2c and 3c
	Before     []int                             // how many of each fit
	Made       nvml.ComputeInstancePlacement
	After      []int
	Refusals   []nvml.Return
}

// partitionCompute creates a compute instance in the middle of a GPU instance.
func partitionCompute(c *child) error {
	if err := must("init", c.lib.Init()); err != nil {
		return err
	}
	gpu, _ := c.lib.DeviceGetHandleByIndex(0)
	if _, ret := gpu.SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.SUCCESS {
		return must("MIG mode", ret)
	}
	gi, ret := gpu.CreateGpuInstance(&nvml.GpuInstanceProfileInfo{Id: 9})
	if err := must("create", ret); err != nil {
		return err
	}
	var report computeReport
	fit := func(into *[]int) error {
		for id := range uint32(3) {
			n, ret := gi.GetComputeInstanceRemainingCapacity(&nvml.ComputeInstanceProfileInfo{Id: id})
			if err := must("remaining", ret); err != nil {
				return err
			}
			*into = append(*into, n)
		}
		return nil
	}
	for id := range uint32(3) {
		list, ret := gi.GetComputeInstancePossiblePlacements(&nvml.ComputeInstanceProfileInfo{Id: id})
		if err := must("placements", ret); err != nil {
			return err
		}
		report.Placements = append(report.Placements, list)
	}
	err := fit(&report.Before)
	one := &nvml.ComputeInstanceProfileInfo{Id: 0}
	ci, ret := gi.CreateComputeInstanceWithPlacement(one, &nvml.ComputeInstancePlacement{Start: 1, Size: 1})
	if err := errors.Join(err, must("create at 1", ret)); err != nil {
		return err
	}
	info, ret := ci.GetInfo()
	report.Made = info.Placement
	for _, start := range []uint32{1, 3} {
		_, refusal := gi.CreateComputeInstanceWithPlacement(one, &nvml.ComputeInstancePlacement{Start: start, Size: 1})
		report.Refusals = append(report.Refusals, refusal)
	}
	return errors.Join(must("info", ret), fit(&report.After), c.send(report))
}

func TestGoNVML_ComputeInstances_Placements(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	child := start(t, node, "partitionCompute")
	var got computeReport
	child.receive(&got)
	child.end()
	want := computeReport{
		Placements: [][]nvml.ComputeInstancePlacement{{{Start: 0, Size: 1}, {Start: 1, Size: 1}, {Start: 2, Size: 1}}, {{Start: 0, Size: 2}, {Start: 1, Size: 2}}, {{Start: 0, Size: 3}}},
		Before:     []int{3, 1, 1}, Made: nvml.ComputeInstancePlacement{Start: 1, Size: 1}, After: []int{2, 0, 0},
		Refusals: []nvml.Return{nvml.ERROR_INSUFFICIENT_RESOURCES, nvml.ERROR_INVALID_ARGUMENT},
	}
	assert.Equal(t, want, got)
	devices := node.Model.Snapshot().GPUs[0].MIGDevices
	require.Len(t, devices, 1)
	assert.Equal(t, "1c.3g.40gb", devices[0].Profile)
}
