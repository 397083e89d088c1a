package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAssignIDs_SharedPrefixes_ShortestThatDiffers(t *testing.T) {
	t.Parallel()
	gpus := []GPU{
		{UUID: "GPU-3F2A9C1B-aaaa-0000-0000-000000000000"},
		{UUID: "GPU-77777777-bbbb-0000-0000-000000000000"},
		{UUID: "GPU-77777777-bbcc-0000-0000-000000000000"},
	}
	AssignIDs(gpus)
	assert.Equal(t, "3f2a9c1b", gpus[0].ID, "a GPU without a twin keeps 8 digits")
	assert.Equal(t, "77777777bbb", gpus[1].ID)
	assert.Equal(t, "77777777bbc", gpus[2].ID)
}

func TestNodeDevices_GPUs_WholeInOrder(t *testing.T) {
	t.Parallel()
	node := &Node{GPUs: []GPU{{UUID: "GPU-3f2a9c1b-0"}, {UUID: "GPU-00000001-0"}}}
	AssignIDs(node.GPUs)
	var names []DeviceName
	for _, d := range node.Devices() {
		names = append(names, d.Name())
	}
	assert.Equal(t, []DeviceName{"gpu-3f2a9c1b", "gpu-00000001"}, names)
}

// TestMonitor_NodesGPUs_BlockedByNothing: the monitor of a node belongs to no single GPU.
func TestMonitor_NodesGPUs_BlockedByNothing(t *testing.T) {
	t.Parallel()
	var d Device = Monitor{}
	assert.Equal(t, DeviceName("monitor"), d.Name())
	assert.Equal(t, TypeMonitor, d.Type())
	assert.Equal(t, &GPU{}, d.Parent())
	assert.Equal(t, "n0/monitor", Monitor{}.Pool("n0"))
	assert.False(t, PendingCleanup{GPU: "GPU-3f2a9c1b-0"}.Blocks(d), "monitoring is never blocked")
}

func TestUnsupportedError_Message_NamesFeatureAndRequirement(t *testing.T) {
	t.Parallel()
	require.EqualError(t, &UnsupportedError{Feature: "MIG"}, "MIG is not supported here")
	require.EqualError(t, &UnsupportedError{Feature: "MIG", Needs: "an A100 or later"}, "MIG is not supported here: it needs an A100 or later")
}
