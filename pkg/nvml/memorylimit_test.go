package nvml

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

func (g *fakeGPU) SetMemoryLimits_v1(cgroup string, soft, hard uint64) nvml.Return { //nolint:revive // the name is NVML's
	ret := g.call(setMemoryLimits)
	g.mu.Lock()
	defer g.mu.Unlock()
	if ret == nvml.SUCCESS {
		g.limits = map[string]gpu.MemoryLimits{cgroup: {Soft: soft, Hard: hard}}
	}
	return ret
}

func (g *fakeGPU) GetMemoryLimits_v1(cgroup string) (nvml.MemoryLimits_v1, nvml.Return) { //nolint:revive // the name is NVML's
	ret := g.call(getMemoryLimits)
	g.mu.Lock()
	defer g.mu.Unlock()
	return nvml.MemoryLimits_v1{NameSpace: cgroup, SoftLimit: g.limits[cgroup].Soft, HardLimit: g.limits[cgroup].Hard}, ret
}

// limiting returns a session on a driver that can limit the memory of cgroups, and its GPU.
func limiting(t *testing.T) (*Session, *fakeGPU) {
	t.Helper()
	d := newFakeDriver(1)
	delete(d.absent, setMemoryLimits)
	delete(d.absent, getMemoryLimits)
	s := openFake(t, d)
	gpus, _, err := s.GPUs(t.Context())
	require.NoError(t, err)
	require.Len(t, gpus, 1)
	assert.True(t, gpus[0].MemoryLimits)
	return s, d.gpus[0]
}

func TestMemoryLimits_SetAndRead_OneCallEach(t *testing.T) {
	t.Parallel()
	s, g := limiting(t)
	assert.Zero(t, g.driver.count(setMemoryLimits)+g.driver.count(getMemoryLimits), "finding out costs no call")
	want := gpu.MemoryLimits{Hard: 4 << 30}
	require.NoError(t, s.SetMemoryLimits(t.Context(), "GPU-00000000-0000", "/sys/fs/cgroup/a", want))
	got, err := s.MemoryLimits(t.Context(), "GPU-00000000-0000", "/sys/fs/cgroup/a")
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Equal(t, map[string]gpu.MemoryLimits{"/sys/fs/cgroup/a": want}, g.limits)
	assert.Equal(t, 1, g.driver.count(setMemoryLimits))
	assert.Equal(t, 1, g.driver.count(getMemoryLimits))

	g.answer(nvml.ERROR_NO_PERMISSION, setMemoryLimits)
	require.ErrorIs(t, s.SetMemoryLimits(t.Context(), "GPU-00000000-0000", "/sys/fs/cgroup/a", want), gpu.ErrPermission)
	require.ErrorIs(t, s.SetMemoryLimits(t.Context(), "GPU-other", "/sys/fs/cgroup/a", want), gpu.ErrNotFound)
	_, err = s.MemoryLimits(t.Context(), "GPU-other", "/sys/fs/cgroup/a")
	require.ErrorIs(t, err, gpu.ErrNotFound)
}

// TestMemoryLimits_OneFunctionMissing_Unsupported: calling a missing function would kill the process.
func TestMemoryLimits_OneFunctionMissing_Unsupported(t *testing.T) {
	t.Parallel()
	for _, symbol := range []string{setMemoryLimits, getMemoryLimits} {
		d := newFakeDriver(1)
		clear(d.absent)
		d.absent[symbol], d.absent["nvmlDeviceGetGpuInstanceProfileInfoV"] = true, true
		s := openFake(t, d)
		gpus, _, err := s.GPUs(t.Context())
		require.NoError(t, err)
		assert.False(t, gpus[0].MemoryLimits)
		if symbol == setMemoryLimits {
			err = s.SetMemoryLimits(t.Context(), gpus[0].UUID, "/sys/fs/cgroup/a", gpu.MemoryLimits{})
		} else {
			_, err = s.MemoryLimits(t.Context(), gpus[0].UUID, "/sys/fs/cgroup/a")
		}
		var unsupported *gpu.UnsupportedError
		require.ErrorAs(t, err, &unsupported)
		assert.Equal(t, "driver 615 or later", unsupported.Needs)
	}
}
