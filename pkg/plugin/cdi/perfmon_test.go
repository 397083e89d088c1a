package cdi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// TestBuild_Perfmon_OneVariableForEachGPU: a container with the counters of two GPUs gets both variables, and no device node or library.
func TestBuild_Perfmon_OneVariableForEachGPU(t *testing.T) {
	t.Parallel()
	b := builder(newHost())
	present := b.Present()
	present.Node.GPUs = []gpu.GPU{{UUID: "GPU-0A1B2C3D-1", Minor: 3}, {UUID: "GPU-99999999-2"}}
	gpu.AssignIDs(present.Node.GPUs)
	present.Common = &specs.ContainerEdits{Mounts: []*specs.Mount{{HostPath: "/usr/lib/libcuda.so.1", ContainerPath: "/usr/lib/libcuda.so.1"}}}
	b.Present = func() Present { return present }
	r := request("GPU-0A1B2C3D-1", gpu.TypePerfmon)
	r.Record.Results = append(r.Record.Results, checkpoint.Result{Device: "e", GPUUUID: "GPU-99999999-2", Type: gpu.TypePerfmon})
	r.Record.CDI.Devices = append(r.Record.CDI.Devices, "e")
	spec, err := b.Build(r)
	require.NoError(t, err)
	first, second := specs.ContainerEdits{Env: []string{"PRISM_PERFMON_0a1b2c3d=GPU-0A1B2C3D-1"}}, specs.ContainerEdits{Env: []string{"PRISM_PERFMON_99999999=GPU-99999999-2"}}
	first.DeviceNodes, second.DeviceNodes = []*specs.DeviceNode{}, []*specs.DeviceNode{}
	assert.Equal(t, first, spec.Devices[0].ContainerEdits)
	assert.Equal(t, second, spec.Devices[1].ContainerEdits)
	assert.Empty(t, spec.ContainerEdits.DeviceNodes)
	assert.Empty(t, spec.ContainerEdits.Mounts)
	assert.NotEmpty(t, present.Common.Mounts)

	r.Record.Results[1].Type = gpu.TypeGPU
	spec, err = b.Build(r)
	require.NoError(t, err)
	assert.Equal(t, first, spec.Devices[0].ContainerEdits)
	assert.Equal(t, []string{protocol.Mark("e") + "=gpu"}, spec.Devices[1].ContainerEdits.Env)
	assert.Len(t, spec.ContainerEdits.Mounts, 1)

	_, err = b.Build(request("GPU-b", gpu.TypePerfmon))
	require.ErrorIs(t, err, gpu.ErrNotFound)
}
