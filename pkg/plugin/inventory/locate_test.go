package inventory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestRefresh_FaultInNewSession_GPUKnown: a known GPU keeps its identity if a later session cannot read it.
func TestRefresh_FaultInNewSession_GPUKnown(t *testing.T) {
	t.Parallel()
	m := newMachine()
	i := newInventory(m)
	require.NoError(t, i.Refresh(t.Context()))
	m.change(func(m *machine) { m.loaded = "" })
	require.ErrorIs(t, i.Refresh(t.Context()), gpu.ErrDriverNotLoaded)
	m.change(func(m *machine) { m.loaded, m.unread, m.faults[1] = "580.95.05", true, gpu.ErrLost })
	for range 2 {
		require.NoError(t, i.Refresh(t.Context()))
		require.Len(t, i.Current().Node.Faults, 1)
		fault := i.Current().Node.Faults[0]
		assert.Equal(t, gpu.UUID("GPU-22222222-bbbb"), fault.UUID)
		assert.Equal(t, "0000:5b:00.0", fault.BusID)
	}
	assert.Equal(t, 2, m.opened)

	fresh := newInventory(m)
	require.NoError(t, fresh.Refresh(t.Context()))
	assert.Empty(t, fresh.Current().Node.Faults[0].UUID, "it was never there")
}

// TestRefresh_DeviceNodeMissing_ShownUntilBack: one GPU lacks its own device node, all GPUs lack a control node that each container gets.
func TestRefresh_DeviceNodeMissing_ShownUntilBack(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.installed[0].DevHostPath = "/run/nvidia/driver"
	i := newInventory(m)
	for _, c := range []struct{ removed, first, second string }{
		{"", "", ""},
		{"/dev/nvidia1", "", ""}, // the node of the host, which no container gets
		{"/run/nvidia/driver/dev/nvidia1", "", "/run/nvidia/driver/dev/nvidia1"},
		{"/run/nvidia/driver/dev/nvidiactl", "/run/nvidia/driver/dev/nvidiactl", "/run/nvidia/driver/dev/nvidiactl"},
		{"/run/nvidia/driver/dev/nvidia-uvm", "/run/nvidia/driver/dev/nvidia-uvm", "/run/nvidia/driver/dev/nvidia-uvm"},
		{"", "", ""},
	} {
		before := i.Current()
		m.change(func(m *machine) { m.removed = map[string]bool{c.removed: true} })
		require.NoError(t, i.Refresh(t.Context()))
		gpus := i.Current().Node.GPUs
		require.Len(t, gpus, 2, "the GPU stays: claims may be using it")
		assert.Equal(t, []string{c.first, c.second}, []string{gpus[0].MissingNode, gpus[1].MissingNode})
		if c.removed == "/dev/nvidia1" {
			assert.Same(t, before, i.Current())
		} else {
			requireReplaced(t, before)
		}
	}
}

// TestRefresh_FactsOfTheSystem_WhereTheDriverHasNone: the minor number, without which a GPU is a fault, and the memory of a GPU without
// memory of its own.
func TestRefresh_FactsOfTheSystem_WhereTheDriverHasNone(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.gpus[0].Minor, m.gpus[0].UnifiedMemory = gpu.UnknownMinor, true
	m.gpus[1].Minor = gpu.UnknownMinor
	m.minors, m.memory = map[string]int{"0000:3b:00.0": 7}, 119<<30
	i := newInventory(m)
	require.NoError(t, i.Refresh(t.Context()))
	node := i.Current().Node
	require.Len(t, node.GPUs, 1)
	assert.Equal(t, 7, node.GPUs[0].Minor)
	assert.Equal(t, uint64(119<<30), node.GPUs[0].Capacity.MemoryBytes)
	require.Len(t, node.Faults, 1)
	assert.Equal(t, gpu.UUID("GPU-22222222-bbbb"), node.Faults[0].UUID)
	assert.Equal(t, "0000:5b:00.0", node.Faults[0].BusID)
	require.EqualError(t, node.Faults[0].Err, "device node unknown: NVML does not report the minor number, and no such GPU: not found")

	m.change(func(m *machine) {
		m.minors["0000:5b:00.0"], m.memory = 3, 0
		m.gpus[1].Capacity.MemoryBytes = 1 << 30
	})
	require.NoError(t, i.Refresh(t.Context()))
	node = i.Current().Node
	require.Len(t, node.GPUs, 2)
	assert.Zero(t, node.GPUs[0].Capacity.MemoryBytes, "not known")
	assert.Equal(t, 3, node.GPUs[1].Minor)
	assert.Equal(t, uint64(1<<30), node.GPUs[1].Capacity.MemoryBytes)
}
