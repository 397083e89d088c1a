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

func TestPerfmon_GPU_DeviceOfItsOwn(t *testing.T) {
	t.Parallel()
	g := &GPU{UUID: "GPU-3f2a9c1b-0", ID: "3f2a9c1b"}
	var d Device = Perfmon{GPU: g}
	assert.Equal(t, DeviceName("gpu-3f2a9c1b-perfmon"), d.Name())
	assert.Same(t, g, d.Parent())
	assert.Equal(t, string(g.UUID), d.ID())
	assert.Equal(t, Shares{Count: 1}, d.Shares())
	assert.False(t, d.Type().EntireGPU())
	assert.Equal(t, Use{Type: TypePerfmon, Device: d.Name()}, next(d))
	assert.Equal(t, "right to the performance counters of GPU GPU-3f2a9c1b-0", next(d).On(g.UUID))
	assert.False(t, PendingCleanup{GPU: g.UUID}.Blocks(d), "the cleanup of the GPU does not touch its counters")
	assert.True(t, PendingCleanup{GPU: g.UUID, Uses: []Use{next(d)}}.Blocks(d))
}

func TestAdditional_Devices_ByKind(t *testing.T) {
	t.Parallel()
	gpus := []GPU{{UUID: "GPU-a"}, {UUID: "GPU-b"}}
	counters := []Device{Perfmon{GPU: &gpus[0]}, Perfmon{GPU: &gpus[1]}}
	assert.Empty(t, Additional{}.Devices(gpus))
	assert.Empty(t, Additional{Monitor: true, Perfmon: true}.Devices(nil))
	assert.Equal(t, []Device{Monitor{}}, Additional{Monitor: true}.Devices(gpus))
	assert.Equal(t, counters, Additional{Perfmon: true}.Devices(gpus))
	assert.Equal(t, append([]Device{Monitor{}}, counters...), Additional{Monitor: true, Perfmon: true}.Devices(gpus))
	for _, d := range append(Additional{Monitor: true, Perfmon: true}.Devices(gpus), Whole{}, TimeSliced{}, MPSShare{}, MIGDevice{}) {
		assert.Equal(t, d.Type().EntireGPU() || d.Type() == TypeMIG, d.Type().UsesGPU(), d.Type())
	}
	assert.True(t, DeviceType("later").UsesGPU())
}

func TestUnsupportedError_Message_NamesFeatureAndRequirement(t *testing.T) {
	t.Parallel()
	require.EqualError(t, &UnsupportedError{Feature: "MIG"}, "MIG is not supported here")
	require.EqualError(t, &UnsupportedError{Feature: "MIG", Needs: "an A100 or later"}, "MIG is not supported here: it needs an A100 or later")
}
