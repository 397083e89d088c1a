package nvml

import (
	"maps"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// needOf returns a function's need from the table, which must list every function that discovery calls.
func needOf(t *testing.T, symbol string) library.Need {
	t.Helper()
	i := slices.IndexFunc(library.Facts, func(f library.Fact) bool { return f.Symbol == symbol })
	require.GreaterOrEqual(t, i, 0, "%s is called for every GPU and not in library.Facts", symbol)
	return library.Facts[i].Need
}

// called lists the functions that an inspection calls.
func called(t *testing.T) []string {
	t.Helper()
	d := newFakeDriver(1)
	_, _, err := openFake(t, d).GPUs(t.Context())
	require.NoError(t, err)
	return slices.Sorted(maps.Keys(d.calls))
}

// TestGPUs_OneFactRefused_AsTheTableSays: if a board refuses any single call, it is usable unless the table says otherwise, and complete
// once it answers. Names of profiles are left out: only the library can create their struct.
func TestGPUs_OneFactRefused_AsTheTableSays(t *testing.T) {
	t.Parallel()
	for _, ret := range []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_UNKNOWN} {
		for _, symbol := range called(t) {
			t.Run(symbol+" "+library.AsError(symbol, ret).Error(), func(t *testing.T) {
				t.Parallel()
				d := newFakeDriver(2)
				s := openFake(t, d)
				whole, _, err := s.GPUs(t.Context())
				require.NoError(t, err)
				s = openFake(t, d)
				d.gpus[0].answer(ret, symbol)
				gpus, faults, err := s.GPUs(t.Context())
				require.NoError(t, err)
				need := needOf(t, symbol)
				switch {
				case symbol == "nvmlDeviceGetCount_v2":
					return // it concerns no GPU
				case need == library.Required, ret == nvml.ERROR_UNKNOWN && (need == library.Life || need == library.Decides):
					require.Len(t, faults, 1)
					require.Len(t, gpus, 1, "it hides no other GPU")
				default:
					require.Empty(t, faults)
					require.Len(t, gpus, 2)
					assert.Equal(t, whole[0].UUID, gpus[0].UUID)
					assert.Equal(t, whole[0].PCI, gpus[0].PCI)
					assert.Equal(t, symbol == "nvmlDeviceGetMemoryInfo" && ret == nvml.ERROR_NOT_SUPPORTED, gpus[0].UnifiedMemory)
				}
				d.gpus[0].answer(nvml.SUCCESS)
				if ret == nvml.ERROR_UNKNOWN {
					gpus, faults, err = s.GPUs(t.Context())
					require.NoError(t, err)
					require.Empty(t, faults)
					assert.Equal(t, whole, gpus, "complete again")
				}
			})
		}
	}
}

// TestGPUs_MIGModeAndProfileUnknown_Fault: GPU instances of a GPU in MIG mode are found by their profiles.
func TestGPUs_MIGModeAndProfileUnknown_Fault(t *testing.T) {
	t.Parallel()
	d := newFakeDriver(1)
	d.gpus[0].modes = modes{1, 1}
	d.gpus[0].answer(nvml.ERROR_UNKNOWN, "nvmlDeviceGetGpuInstancePossiblePlacements_v2")
	_, faults, err := openFake(t, d).GPUs(t.Context())
	require.NoError(t, err)
	require.Len(t, faults, 1)
	assert.Contains(t, faults[0].Err.Error(), "reading the MIG profiles of GPU 0, which is in MIG mode")
}

// TestDriver_CUDAVersionRefused_DriverKnown: the version of the driver is enough.
func TestDriver_CUDAVersionRefused_DriverKnown(t *testing.T) {
	t.Parallel()
	for _, ret := range []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_UNKNOWN} {
		d := newFakeDriver(1)
		d.returns = map[string]nvml.Return{"nvmlSystemGetCudaDriverVersion": ret}
		driver, err := openFake(t, d).Driver(t.Context())
		require.NoError(t, err)
		assert.Equal(t, gpu.Driver{Version: "580.95.05"}, driver)
	}
}
