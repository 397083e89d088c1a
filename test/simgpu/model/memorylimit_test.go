package model_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

func TestSetMemoryLimits_BadLimits_Refused(t *testing.T) {
	s, h := process(t, oneGPU(t, model.ComputeDefault))
	for _, limits := range []model.MemoryLimits{{Soft: 2 * gib, Hard: gib}, {Hard: 500 * gib}, {Soft: 500 * gib, Hard: model.NoMemoryLimit}} {
		assert.Equal(t, model.InvalidArgument, s.SetMemoryLimits(h, 7, limits, true))
	}
	assert.Equal(t, model.NoPermission, s.SetMemoryLimits(h, 7, model.MemoryLimits{Hard: gib}, false))
	limits, err := s.MemoryLimits(h, 7)
	require.NoError(t, err)
	assert.Equal(t, model.MemoryLimits{Hard: model.NoMemoryLimit}, limits)
}

// All processes of a cgroup, and of those below it, share its limit.
func TestAllocate_CgroupLimit_SharedByProcesses(t *testing.T) {
	s, h := process(t, oneGPU(t, model.ComputeDefault))
	require.NoError(t, s.SetMemoryLimits(h, 7, model.MemoryLimits{Hard: 4 * gib}, true))
	var ids []uint64
	for pid, cgroups := range [][]uint64{{7}, {8, 7}, {9}} {
		id, err := s.CreateContext(h, model.ContextSpec{PID: pid + 1, Cgroups: cgroups})
		require.NoError(t, err)
		ids = append(ids, id)
	}
	_, err := s.Allocate(h, ids[0], 2*gib)
	require.NoError(t, err)
	_, err = s.Allocate(h, ids[1], gib+1)
	assert.Equal(t, model.OutOfMemory, err)
	_, err = s.Allocate(h, ids[2], 20*gib)
	require.NoError(t, err, "in another cgroup")
	free, total, err := s.ContextMemoryInfo(h, ids[0])
	require.NoError(t, err)
	assert.Equal(t, []uint64{gib, 4 * gib}, []uint64{free, total})
	_, total, err = s.ContextMemoryInfo(h, ids[1])
	require.NoError(t, err)
	assert.Greater(t, total, uint64(70*gib), "the limit of a parent is not shown")
	limits, err := s.MemoryLimits(h, 7)
	require.NoError(t, err)
	assert.Equal(t, model.MemoryLimits{Hard: 4 * gib, Used: 3 * gib}, limits)

	require.NoError(t, s.SetMemoryLimits(h, 7, model.MemoryLimits{Hard: model.NoMemoryLimit}, true))
	_, err = s.Allocate(h, ids[1], 8*gib)
	assert.NoError(t, err)
}

// Soft limits are reported and accounted until they are set to 0; otherwise they stay until the driver is loaded again.
func TestMemoryLimits_Soft_AccountedUntilZeroed(t *testing.T) {
	node := oneGPU(t, model.ComputeDefault)
	s, h := process(t, node)
	for cgroup, limits := range map[uint64]model.MemoryLimits{7: {Soft: gib, Hard: 4 * gib}, 8: {Soft: 2 * gib, Hard: model.NoMemoryLimit}} {
		require.NoError(t, s.SetMemoryLimits(h, cgroup, limits, true))
		read, err := s.MemoryLimits(h, cgroup)
		require.NoError(t, err)
		assert.Equal(t, limits, read)
	}
	protected := func() uint64 { return node.GPUs()[0].ProtectedMemory }
	assert.Equal(t, uint64(3*gib), protected())
	require.NoError(t, s.SetMemoryLimits(h, 8, model.MemoryLimits{Hard: model.NoMemoryLimit}, true))
	assert.Equal(t, uint64(gib), protected())
	require.Equal(t, model.InvalidArgument, s.SetMemoryLimits(h, 7, model.MemoryLimits{Soft: 5 * gib, Hard: 4 * gib}, true))
	assert.Equal(t, uint64(gib), protected(), "a refused limit changes nothing")
	s.Close()
	assert.Equal(t, uint64(gib), protected())
	node.Unload()
	require.NoError(t, node.Load(model.DefaultDriver))
	assert.Zero(t, protected())
}
