package hostfs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestSystemMemory_KernelsFile_InBytes(t *testing.T) {
	t.Parallel()
	memory, err := New(tree(t, map[string]string{"proc/meminfo": "MemTotal:       125829120 kB\nMemFree:  1 kB\n"})).SystemMemory()
	require.NoError(t, err)
	assert.Equal(t, uint64(120<<30), memory)
	_, err = New(t.TempDir()).SystemMemory()
	require.ErrorIs(t, err, gpu.ErrNotFound)
	_, err = New(tree(t, map[string]string{"proc/meminfo": "MemFree: 1 kB\n"})).SystemMemory()
	require.ErrorIs(t, err, gpu.ErrNotFound)
	for _, text := range []string{"MemTotal: 1 MB\n", "MemTotal: -1 kB\n", "MemTotal: 99999999999999999 kB\n", "MemTotal:\n"} {
		_, err = New(tree(t, map[string]string{"proc/meminfo": text})).SystemMemory()
		require.ErrorContains(t, err, "reading /proc/meminfo: MemTotal: must be a number of kB, got", text)
	}
}

func TestGPUMinor_KernelModulesFile_Read(t *testing.T) {
	t.Parallel()
	const file = "proc/driver/nvidia/gpus/0000:3b:00.0/information"
	for text, want := range map[string]int{
		"Model: \t\t NVIDIA GB10\nBus Location: \t 0000:3b:00.0\nDevice Minor: \t 7\nGPU Excluded:\t No\n": 7, "Device Minor: 0": 0,
	} {
		minor, err := New(tree(t, map[string]string{file: text})).GPUMinor("0000:3b:00.0")
		require.NoError(t, err)
		assert.Equal(t, want, minor)
	}
	host := New(tree(t, map[string]string{file: "Model: \t\t NVIDIA GB10\n"}))
	for _, busID := range []string{"0000:3b:00.0", "0000:3c:00.0", ""} {
		_, err := host.GPUMinor(busID)
		require.ErrorIs(t, err, gpu.ErrNotFound, busID)
	}
	_, err := New(tree(t, map[string]string{file: "Device Minor: -1\n"})).GPUMinor("0000:3b:00.0")
	require.EqualError(t, err, `reading /`+file+`: Device Minor: must be a number, got "-1"`)
}
