package model_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

const gib = 1 << 30

// process opens a session of a process that sees the first GPU.
func process(t *testing.T, node *model.Node) (*model.Session, model.Handle) {
	t.Helper()
	s, err := node.Open("", []int{0})
	require.NoError(t, err)
	h, err := s.ByIndex(0)
	require.NoError(t, err)
	return s, h
}

func oneGPU(t *testing.T, mode model.ComputeMode) *model.Node {
	t.Helper()
	node, err := model.New(model.Uniform("node-a", "h100-80", 1))
	require.NoError(t, err)
	s, h := process(t, node)
	require.NoError(t, s.SetComputeMode(h, mode, true))
	return node
}

func TestCreateContext_ComputeMode_Owners(t *testing.T) {
	for mode, want := range map[model.ComputeMode][]error{
		model.ComputeDefault:          {nil, nil, nil},
		model.ComputeExclusiveProcess: {nil, model.InUse, nil},
		model.ComputeProhibited:       {model.InUse, model.InUse, model.InUse},
	} {
		node := oneGPU(t, mode)
		for i, pid := range []int{1, 2, 1} {
			s, h := process(t, node)
			_, err := s.CreateContext(h, model.ContextSpec{PID: pid})
			assert.Equal(t, want[i], err, "mode %d, context %d", mode, i)
		}
	}
}

func TestCreateContext_MPSServer_OwnerWithItsClients(t *testing.T) {
	node := oneGPU(t, model.ComputeExclusiveProcess)
	client, h := process(t, node)
	spec := model.ContextSpec{PID: 2, Role: model.MPSClientContext, Server: 7, Limit: 2 * gib}
	_, err := client.CreateContext(h, spec)
	require.Equal(t, model.NotFound, err, "no server exists")
	server, _ := process(t, node)
	_, err = server.CreateContext(h, model.ContextSpec{PID: 1, Role: model.MPSServerContext, Server: 7})
	require.NoError(t, err)
	id, err := client.CreateContext(h, spec)
	require.NoError(t, err)
	_, err = client.CreateContext(h, model.ContextSpec{PID: 2})
	assert.Equal(t, model.InUse, err, "beside the server")

	free, total, err := client.ContextMemoryInfo(h, id)
	require.NoError(t, err)
	assert.Equal(t, uint64(2*gib-model.ContextMemory), free)
	assert.Greater(t, total, uint64(70*gib), "a limit does not lower the total")
	_, err = client.Allocate(h, id, free+1)
	assert.Equal(t, model.OutOfMemory, err)
	_, err = client.Allocate(h, id, free)
	require.NoError(t, err)

	own, err := server.Processes(h, false)
	require.NoError(t, err)
	assert.Equal(t, []model.Process{{PID: 1, Memory: model.ContextMemory, GPUInstance: model.NoInstance, ComputeInstance: model.NoInstance}}, own)
	served, err := server.Processes(h, true)
	require.NoError(t, err)
	assert.Equal(t, []model.Process{{PID: 2, Memory: 2 * gib, GPUInstance: model.NoInstance, ComputeInstance: model.NoInstance, MPSClient: true}}, served)

	server.Close()
	_, err = client.Allocate(h, id, 1)
	assert.Equal(t, model.InvalidState, err, "the server is gone")
	use, err := client.Memory(h)
	require.NoError(t, err)
	assert.Zero(t, use.Used)
}

func TestEndClients_OneClient_NotReady(t *testing.T) {
	node := oneGPU(t, model.ComputeDefault)
	server, h := process(t, node)
	_, err := server.CreateContext(h, model.ContextSpec{PID: 1, Role: model.MPSServerContext, Server: 7})
	require.NoError(t, err)
	var ids []uint64
	for pid := 2; pid <= 3; pid++ {
		id, err := server.CreateContext(h, model.ContextSpec{PID: pid, Role: model.MPSClientContext, Server: 7})
		require.NoError(t, err)
		ids = append(ids, id)
	}
	require.NoError(t, server.EndClients(h, 7, 2))
	_, err = server.Allocate(h, ids[0], 1)
	assert.Equal(t, model.NotReady, err)
	_, err = server.Allocate(h, ids[1], 1)
	assert.NoError(t, err)
}

func TestAllocate_DeviceFull_FreedByOtherProcessesExit(t *testing.T) {
	node := oneGPU(t, model.ComputeDefault)
	first, h := process(t, node)
	second, _ := process(t, node)
	a, err := first.CreateContext(h, model.ContextSpec{PID: 1})
	require.NoError(t, err)
	b, err := second.CreateContext(h, model.ContextSpec{PID: 2})
	require.NoError(t, err)
	address, err := first.Allocate(h, a, 50*gib)
	require.NoError(t, err)
	_, err = second.Allocate(h, b, 50*gib)
	require.Equal(t, model.OutOfMemory, err)
	require.NoError(t, first.Release(h, a, address))
	require.Equal(t, model.InvalidArgument, first.Release(h, a, address))
	_, err = first.Allocate(h, a, 50*gib)
	require.NoError(t, err)
	first.Close()
	_, err = second.Allocate(h, b, 50*gib)
	require.NoError(t, err)
	require.Equal(t, model.InUse, node.ResetGPU(0))
	second.Close()
	require.NoError(t, node.ResetGPU(0))
}

func TestCreateContext_MIG_PerComputeInstance(t *testing.T) {
	node := oneGPU(t, model.ComputeDefault)
	s, h := process(t, node)
	_, err := s.SetMIGMode(t.Context(), h, true, true)
	require.NoError(t, err)
	require.NoError(t, s.SetComputeMode(h, model.ComputeExclusiveProcess, true))
	var devices []model.Handle
	for i := range 2 {
		gi, err := s.CreateGPUInstance(t.Context(), h, 19, nil, true)
		require.NoError(t, err)
		_, err = s.CreateComputeInstance(t.Context(), gi, 0, true)
		require.NoError(t, err)
		device, err := s.MIGDeviceByIndex(h, i)
		require.NoError(t, err)
		devices = append(devices, device)
	}
	_, err = s.CreateContext(h, model.ContextSpec{PID: 1})
	assert.Equal(t, model.NotSupported, err)
	for i, pid := range []int{1, 2} {
		id, err := s.CreateContext(devices[i], model.ContextSpec{PID: pid})
		require.NoError(t, err)
		_, total, err := s.ContextMemoryInfo(devices[i], id)
		require.NoError(t, err)
		assert.Less(t, total, uint64(11*gib))
	}
	_, err = s.CreateContext(devices[0], model.ContextSpec{PID: 2})
	assert.Equal(t, model.InUse, err)
	list, err := s.Processes(h, false)
	require.NoError(t, err)
	assert.Len(t, list, 2)
	list, err = s.Processes(devices[1], false)
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, 2, list[0].PID)
	count, err := s.Multiprocessors(devices[0])
	require.NoError(t, err)
	assert.Equal(t, 16, count)
}
