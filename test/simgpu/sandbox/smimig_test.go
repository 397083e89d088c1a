package sandbox_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// nvidia-smi -mig changes the mode, or reports why it cannot.
func TestSMI_MIGMode_SetOrRefused(t *testing.T) {
	node := sandbox.Start(t, model.Spec{Name: "node-a", Boards: []string{"h100-80", "a30", "t4"}})
	output, code := smi(t, node, "-mig", "1")
	assert.Zero(t, code)
	for _, want := range []string{
		"Enabled MIG Mode for GPU 00000000:1B:00.0\n", "MIG mode is in pending enable state for GPU 00000000:43:00.0:GPU requires reset\n",
		"Unable to enable MIG Mode for GPU 00000000:52:00.0: Not Supported\n",
	} {
		assert.Contains(t, output, want)
	}
	require.NoError(t, node.Model.ResetGPU(1))
	gpus := node.Model.Snapshot().GPUs
	assert.Equal(t, []bool{true, true, false}, []bool{gpus[0].MIG, gpus[1].MIG, gpus[2].MIG})
}

// makeMIGDevices creates a MIG device of each profile on a GPU in MIG mode.
func makeMIGDevices(t *testing.T, node *sandbox.Node, minor int, profiles ...uint32) {
	t.Helper()
	session, err := node.Model.Open("", []int{minor})
	require.NoError(t, err)
	gpu, err := session.ByIndex(0)
	require.NoError(t, err)
	for _, profile := range profiles {
		gi, err := session.CreateGPUInstance(t.Context(), gpu, profile, nil, true)
		require.NoError(t, err)
		instance, err := session.GPUInstance(gi)
		require.NoError(t, err)
		compute := instance.Profile.ComputeProfiles()
		_, err = session.CreateComputeInstance(t.Context(), gi, compute[len(compute)-1].ID, true)
		require.NoError(t, err)
	}
}

// nvidia-smi -L lists MIG devices below their GPU.
func TestSMI_List_MIGDevices(t *testing.T) {
	node := sandbox.Start(t, model.Spec{Name: "node-a", Boards: []string{"a30", "t4"}, MIG: []int{0}})
	makeMIGDevices(t, node, 0, 5, 21) // 2g.12gb, 1g.6gb+me
	ids, devices := node.Model.Identities(), node.Model.Snapshot().GPUs[0].MIGDevices
	output, code := smi(t, node, "-L")
	assert.Zero(t, code)
	assert.Equal(t, fmt.Sprintf("GPU 0: NVIDIA A30 (UUID: %s)\n"+
		"  MIG 2g.12gb     Device  0: (UUID: %s)\n  MIG 1g.6gb+me   Device  1: (UUID: %s)\nGPU 1: Tesla T4 (UUID: %s)\n",
		ids[0].UUID, devices[0].UUID, devices[1].UUID, ids[1].UUID), output)
}

// administration are nvidia-smi commands on GPU 1 and their results.
var administration = []struct {
	args []string
	code model.Return
}{
	{[]string{"mig", "-i", "1", "-cgi", "19", "-C"}, 6},
	{[]string{"-i", "1", "-mig", "1"}, 0},
	{[]string{"mig", "-i", "1", "-cgi", "9:4,19", "-C"}, 0},
	{[]string{"mig", "-i", "1", "-cgi", "9:4"}, model.InsufficientResources},
	{[]string{"mig", "-i", "1", "-dgi"}, model.InUse},
	{[]string{"mig", "-i", "1", "-dci"}, 0},
	{[]string{"mig", "-i", "1", "-dgi"}, 0},
	{[]string{"mig", "-i", "1", "-cgi", "20:6"}, 0},
	{[]string{"mig", "-i", "1", "-cgi", "20"}, model.InsufficientResources},
	{[]string{"mig", "-i", "1", "-dgi"}, 0},
	{[]string{"-i", "1", "-mig", "0"}, 0},
}

// nvidia-smi creates and destroys instances.
func TestSMI_Instances_CreatedAndDestroyed(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 2))
	for i, step := range administration {
		output, code := smi(t, node, step.args...)
		require.Equal(t, int(step.code), code, "%v: %s", step.args, output)
		devices := node.Model.Snapshot().GPUs[1].MIGDevices
		switch i {
		case 2:
			require.Len(t, devices, 2)
			assert.Contains(t, output, "using profile MIG 3g.40gb (ID  9)")
			assert.NotNil(t, devices[0].ComputeInstance)
			assert.NotNil(t, devices[1].ComputeInstance)
		case 7:
			require.Len(t, devices, 1)
			assert.Equal(t, model.Placement{Start: 6, Size: 1}, devices[0].Placement)
			assert.Nil(t, devices[0].ComputeInstance)
		}
	}
	assert.Empty(t, node.Model.Snapshot().GPUs[1].MIGDevices)
}

// NVIDIA's own tool prints the same output.
func TestRealSMI_Instances_SameOutput(t *testing.T) {
	program := realSMI(t)
	real, ours := sandbox.Start(t, model.Uniform("node-a", "h100-80", 2)), sandbox.Start(t, model.Uniform("node-a", "h100-80", 2))
	for _, step := range administration {
		want, wantCode := run(t, real, program, step.args...)
		got, gotCode := smi(t, ours, step.args...)
		assert.Equal(t, want, got, "%v", step.args)
		assert.Equal(t, wantCode, gotCode, "%v", step.args)
	}
}
