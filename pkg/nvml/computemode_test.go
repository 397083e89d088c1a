package nvml

import (
	"maps"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

func (g *fakeGPU) GetComputeMode() (nvml.ComputeMode, nvml.Return) {
	ret := g.call("nvmlDeviceGetComputeMode")
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.computeMode, ret
}

func (g *fakeGPU) SetComputeMode(mode nvml.ComputeMode) nvml.Return {
	ret := g.call("nvmlDeviceSetComputeMode")
	g.mu.Lock()
	defer g.mu.Unlock()
	if ret == nvml.SUCCESS {
		g.computeMode = mode
	}
	return ret
}

// GetComputeMode and SetComputeMode fail as in a driver that does not support compute modes of MIG devices.
func (*fakeMIG) GetComputeMode() (nvml.ComputeMode, nvml.Return) {
	return 0, nvml.ERROR_INVALID_ARGUMENT
}

func (*fakeMIG) SetComputeMode(nvml.ComputeMode) nvml.Return { return nvml.ERROR_NOT_SUPPORTED }

// since returns the calls since it was called last.
func (d *fakeDriver) since() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := maps.Clone(d.calls)
	clear(d.calls)
	return calls
}

func TestComputeMode_SetAndRead_OneCallEach(t *testing.T) {
	t.Parallel()
	s, g := seeing(t)
	g.driver.since()
	for code, mode := range computeModes {
		require.NoError(t, s.SetComputeMode(t.Context(), string(firstGPU), mode))
		assert.Equal(t, map[string]int{"nvmlDeviceSetComputeMode": 1}, g.driver.since())
		assert.Equal(t, code, g.computeMode)
		read, err := s.ComputeMode(t.Context(), string(firstGPU))
		require.NoError(t, err)
		assert.Equal(t, mode, read)
		assert.Equal(t, map[string]int{"nvmlDeviceGetComputeMode": 1}, g.driver.since())
	}
	require.EqualError(t, s.SetComputeMode(t.Context(), string(firstGPU), "Turbo"), `setting the compute mode of GPU-00000000-0000: unknown mode "Turbo"`)
	assert.Empty(t, g.driver.since())
	g.computeMode = 9
	_, err := s.ComputeMode(t.Context(), string(firstGPU))
	require.EqualError(t, err, "nvmlDeviceGetComputeMode on GPU 0: unknown compute mode 9")
}

func TestComputeMode_DriverRefuses_OurErrors(t *testing.T) {
	t.Parallel()
	s, g := seeing(t)
	for ret, want := range map[nvml.Return]error{
		nvml.ERROR_GPU_IS_LOST: gpu.ErrLost, nvml.ERROR_NO_PERMISSION: gpu.ErrPermission, nvml.ERROR_DRIVER_NOT_LOADED: gpu.ErrDriverNotLoaded,
	} {
		g.answer(ret, "nvmlDeviceGetComputeMode", "nvmlDeviceSetComputeMode")
		_, err := s.ComputeMode(t.Context(), string(firstGPU))
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, s.SetComputeMode(t.Context(), string(firstGPU), gpu.ComputeProhibited), want)
	}
	_, err := s.ComputeMode(t.Context(), "GPU-1")
	require.ErrorIs(t, err, gpu.ErrNotFound)
}

func TestComputeMode_MIGDevice_Unsupported(t *testing.T) {
	t.Parallel()
	s, g := seeing(t)
	require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true))
	gi, err := s.CreateInstance(t.Context(), firstGPU, 0, gpu.Placement{Size: 8})
	require.NoError(t, err)
	made, err := s.CreateComputeInstance(t.Context(), firstGPU, gi)
	require.NoError(t, err)
	g.driver.since()
	var unsupported *gpu.UnsupportedError
	_, err = s.ComputeMode(t.Context(), string(made.UUID))
	require.ErrorAs(t, err, &unsupported)
	require.ErrorAs(t, s.SetComputeMode(t.Context(), string(made.UUID), gpu.ComputeDefault), &unsupported)
	assert.Equal(t, map[string]int{"nvmlDeviceGetHandleByUUID": 2}, g.driver.since())
	_, err = s.ComputeMode(t.Context(), "MIG-1")
	require.ErrorIs(t, err, gpu.ErrNotFound)
}
