package library

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestReturns_NVMLCodes_KindsOfErrors(t *testing.T) {
	t.Parallel()
	cases := []struct {
		ret  nvml.Return
		kind error
		text string
	}{
		{nvml.ERROR_UNINITIALIZED, gpu.ErrDriverNotLoaded, "NVIDIA driver is not loaded (NVML UNINITIALIZED)"},
		{nvml.ERROR_DRIVER_NOT_LOADED, gpu.ErrDriverNotLoaded, "NVIDIA driver is not loaded (NVML DRIVER_NOT_LOADED)"},
		{nvml.ERROR_LIBRARY_NOT_FOUND, gpu.ErrDriverNotLoaded, "NVIDIA driver is not loaded (NVML LIBRARY_NOT_FOUND)"},
		{nvml.ERROR_LIB_RM_VERSION_MISMATCH, gpu.ErrDriverNotLoaded, "NVIDIA driver is not loaded (NVML LIB_RM_VERSION_MISMATCH)"},
		{nvml.ERROR_GPU_IS_LOST, gpu.ErrLost, "GPU is lost (NVML GPU_IS_LOST)"},
		{nvml.ERROR_RESET_REQUIRED, gpu.ErrLost, "GPU is lost (NVML RESET_REQUIRED)"},
		{nvml.ERROR_NOT_FOUND, gpu.ErrNotFound, "not found (NVML NOT_FOUND)"},
		{nvml.ERROR_GPU_NOT_FOUND, gpu.ErrNotFound, "not found (NVML GPU_NOT_FOUND)"},
		{nvml.ERROR_NO_DATA, gpu.ErrNotFound, "not found (NVML NO_DATA)"},
		{nvml.ERROR_IN_USE, gpu.ErrInUse, "in use (NVML IN_USE)"},
		{nvml.ERROR_INSUFFICIENT_RESOURCES, gpu.ErrInUse, "in use (NVML INSUFFICIENT_RESOURCES)"},
		{nvml.ERROR_NOT_READY, gpu.ErrInUse, "in use (NVML NOT_READY)"},
		{nvml.ERROR_TIMEOUT, gpu.ErrTimeout, "no answer within the deadline (NVML TIMEOUT)"},
		{nvml.ERROR_NO_PERMISSION, gpu.ErrPermission, "permission denied (NVML NO_PERMISSION)"},
		{nvml.ERROR_INVALID_ARGUMENT, nil, "NVML INVALID_ARGUMENT"},
		{nvml.ERROR_UNKNOWN, nil, "NVML UNKNOWN"},
		{nvml.Return(4711), nil, "NVML code 4711"},
	}
	require.NoError(t, AsError("nvmlX", nvml.SUCCESS))
	for _, c := range cases {
		err := AsError("nvmlX", c.ret)
		require.EqualError(t, err, c.text)
		if c.kind != nil {
			require.ErrorIs(t, err, c.kind)
		}
	}
	for _, ret := range []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_DEPRECATED} {
		var unsupported *gpu.UnsupportedError
		require.ErrorAs(t, AsError("nvmlX", ret), &unsupported)
		assert.Equal(t, "nvmlX", unsupported.Feature)
	}
	for ret := nvml.ERROR_UNINITIALIZED; ret <= nvml.ERROR_RESET_TYPE_NOT_SUPPORTED; ret++ {
		_, known := codes[ret]
		assert.True(t, known, "code %d of this go-nvml", int(ret))
	}
}

func TestOpen_Library_OneFileBound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := &binding{gate: NewGate()}
	one, two := filepath.Join(dir, "libnvidia-ml.so.580.95.05"), filepath.Join(dir, "libnvidia-ml.so.590.10")
	require.NoError(t, os.WriteFile(one, []byte("ELF"), 0o644))
	require.NoError(t, os.WriteFile(two, []byte("ELF"), 0o644))

	_, err := b.library(filepath.Join(dir, "gone"))
	require.ErrorIs(t, err, gpu.ErrNotFound)
	lib, err := b.library(one)
	require.NoError(t, err)
	again, err := b.library(one)
	require.NoError(t, err)
	assert.Same(t, lib, again)
	_, err = b.library(two)
	require.ErrorIs(t, err, gpu.ErrDriverReplaced)

	require.NoError(t, os.WriteFile(one, []byte("ELF, longer"), 0o644))
	_, err = b.library(one)
	require.ErrorIs(t, err, gpu.ErrDriverReplaced, "the same name with other content")

	b.reset(lib)
	_, err = b.library(two)
	require.NoError(t, err, "a file that could not be loaded binds nothing")
}

func TestArchitectureName_UnknownNumber_ByComputeCapability(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "Blackwell", ArchitectureName(nvml.DEVICE_ARCH_UNKNOWN, 12, 0))
	assert.Equal(t, "Ada Lovelace", ArchitectureName(0, 8, 9))
	assert.Equal(t, "Ampere", ArchitectureName(0, 8, 6))
	assert.Equal(t, "Turing", ArchitectureName(0, 7, 5))
	assert.Equal(t, "Volta", ArchitectureName(0, 7, 0))
	assert.Equal(t, "Pascal", ArchitectureName(0, 6, 1))
	assert.Equal(t, "Maxwell", ArchitectureName(0, 5, 2))
	assert.Equal(t, "Kepler", ArchitectureName(0, 3, 7))
	assert.Equal(t, "Unknown", ArchitectureName(77, 77, 0))
	assert.Equal(t, "Unknown", BrandName(nvml.BRAND_UNKNOWN))
	assert.Equal(t, "12.4", cudaVersion(12040))
}
