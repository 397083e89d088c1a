package nvml

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

func TestGPUs_DifferentModels_Described(t *testing.T) {
	t.Parallel()
	d := newFakeDriver(2)
	t4 := d.gpus[1]
	t4.name, t4.mig, t4.cores, t4.architecture = "Tesla T4", false, 2560, nvml.DEVICE_ARCH_TURING
	t4.brand, t4.capability = nvml.BRAND_TESLA, computeCapability{7, 5}
	s := openFake(t, d)

	driver, err := s.Driver(t.Context())
	require.NoError(t, err)
	assert.Equal(t, gpu.Driver{Version: "580.95.05", CUDAVersion: "13.0"}, driver)
	require.NoError(t, s.Ping(t.Context()))

	gpus, faults, err := s.GPUs(t.Context())
	require.NoError(t, err)
	assert.Empty(t, faults)
	want := []gpu.GPU{
		{
			UUID: "GPU-00000000-0000", Index: 0, Minor: 10, PCI: gpu.PCI{BusID: "0000:3b:00.0", NUMANode: -1},
			Product: gpu.Product{
				Name: "NVIDIA H100 80GB HBM3", Brand: "Nvidia", Architecture: "Hopper", AddressingMode: "None", ComputeCapability: "9.0", MIGCapable: true,
			},
			Capacity: gpu.Capacity{
				MemoryBytes: 81559 << 20, Multiprocessors: 132, CopyEngines: 8, Decoders: 7, JPEGEngines: 7, OFAEngines: 1,
			},
			MIG: &gpu.MIG{Profiles: []gpu.MIGProfile{{
				Name: "7g.80gb", Slices: 7, MaxInstances: 1, Placements: []gpu.Placement{{Start: 0, Size: 8}},
				Capacity: gpu.Capacity{
					MemoryBytes: 80896 << 20, Multiprocessors: 128, CopyEngines: 8, Decoders: 7, JPEGEngines: 7, OFAEngines: 1,
				},
			}}},
		},
		{
			UUID: "GPU-00000001-0000", Index: 1, Minor: 11, PCI: gpu.PCI{BusID: "0000:3c:00.0", NUMANode: -1},
			Product:  gpu.Product{Name: "Tesla T4", Brand: "Tesla", Architecture: "Turing", AddressingMode: "None", ComputeCapability: "7.5"},
			Capacity: gpu.Capacity{MemoryBytes: 81559 << 20, Multiprocessors: 40},
		},
	}
	assert.Empty(t, cmp.Diff(want, gpus))
}

func TestGPUs_SecondInspection_OnlyWhatCanChange(t *testing.T) {
	t.Parallel()
	d := newFakeDriver(3)
	d.gpus[2].mig = false
	s := openFake(t, d)
	first, _, err := s.GPUs(t.Context())
	require.NoError(t, err)
	d.mu.Lock()
	d.calls = map[string]int{}
	d.mu.Unlock()
	again, _, err := s.GPUs(t.Context())
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(first, again))
	assert.Equal(t, map[string]int{"nvmlDeviceGetCount_v2": 1, "nvmlDeviceGetPerformanceState": 3, "nvmlDeviceGetMigMode": 2}, d.calls)
}

func TestGPUs_AddressingMode_AsNVIDIAsDriverNamesIt(t *testing.T) {
	t.Parallel()
	for mode, want := range map[nvml.DeviceAddressingModeType]string{
		nvml.DEVICE_ADDRESSING_MODE_NONE: "None", nvml.DEVICE_ADDRESSING_MODE_HMM: "HMM", nvml.DEVICE_ADDRESSING_MODE_ATS: "ATS", 7: "",
	} {
		d := newFakeDriver(1)
		d.gpus[0].addressing = mode
		gpus, _, err := openFake(t, d).GPUs(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, gpus[0].Product.AddressingMode)
	}
}

func TestSymbols_Absent_NotCalled(t *testing.T) {
	t.Parallel()
	d := newFakeDriver(1)
	for _, symbol := range []string{
		"nvmlDeviceGetArchitecture", "nvmlDeviceGetMigMode", "nvmlDeviceGetGpuInstanceProfileInfo", "nvmlDeviceGetNumGpuCores",
		getMemoryLimits, setMemoryLimits, "nvmlDeviceGetAddressingMode",
	} {
		d.absent[symbol] = true
	}
	s := openFake(t, d)
	gpus, faults, err := s.GPUs(t.Context())
	require.NoError(t, err)
	require.Empty(t, faults)
	assert.Equal(t, "Hopper", gpus[0].Product.Architecture, "by the compute capability")
	assert.Equal(t, gpu.Capacity{MemoryBytes: 81559 << 20}, gpus[0].Capacity)
	assert.False(t, gpus[0].Product.MIGCapable)
	assert.Empty(t, gpus[0].Product.AddressingMode)

	d = newFakeDriver(1)
	d.absent["nvmlDeviceGetMinorNumber"] = true
	gpus, faults, err = openFake(t, d).GPUs(t.Context())
	require.NoError(t, err)
	require.Empty(t, faults)
	assert.Equal(t, gpu.UnknownMinor, gpus[0].Minor, "the kernel module may know it")
}

func TestGPUs_OneFails_OthersShown(t *testing.T) {
	t.Parallel()
	d := newFakeDriver(3)
	s := openFake(t, d)
	d.gpus[0].answer(nvml.ERROR_UNKNOWN, "nvmlDeviceGetHandleByIndex_v2")
	d.gpus[1].answer(nvml.ERROR_GPU_IS_LOST, "nvmlDeviceGetPerformanceState")
	gpus, faults, err := s.GPUs(t.Context())
	require.NoError(t, err)
	require.Len(t, gpus, 1)
	assert.Equal(t, 2, gpus[0].Index)
	require.Len(t, faults, 2)
	require.EqualError(t, faults[0].Err, "nvmlDeviceGetHandleByIndex_v2 on GPU 0: NVML UNKNOWN")
	assert.Empty(t, faults[0].UUID)
	require.EqualError(t, faults[1].Err, "nvmlDeviceGetPerformanceState on GPU 1: GPU is lost (NVML GPU_IS_LOST)")
	assert.Equal(t, gpu.UUID("GPU-00000001-0000"), faults[1].UUID, "what was read before is reported")
	assert.Equal(t, "0000:3c:00.0", faults[1].BusID)

	d.gpus[0].answer(nvml.SUCCESS)
	d.gpus[1].answer(nvml.SUCCESS)
	d.gpus[2].answer(nvml.ERROR_GPU_IS_LOST, "nvmlDeviceGetPerformanceState")
	gpus, faults, err = s.GPUs(t.Context())
	require.NoError(t, err)
	assert.Len(t, gpus, 2, "GPUs that answer again are back")
	require.Len(t, faults, 1)
	assert.Equal(t, gpu.UUID("GPU-00000002-0000"), faults[0].UUID, "known from before it was lost")

	d.gpus[2].answer(nvml.SUCCESS)
	handles := d.count("nvmlDeviceGetHandleByIndex_v2")
	gpus, _, err = s.GPUs(t.Context())
	require.NoError(t, err)
	assert.Len(t, gpus, 3)
	assert.Equal(t, handles+1, d.count("nvmlDeviceGetHandleByIndex_v2"), "a GPU that was lost gets a new handle")
}

func TestGPUs_OneHangs_OthersShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(2)
		s, err := open(t.Context(), d, library.NewGate(), Options{Deadline: 3 * time.Second})
		require.NoError(t, err)
		release := d.gpus[1].block("nvmlDeviceGetName")
		t.Cleanup(release)

		start := time.Now()
		gpus, faults, err := s.GPUs(t.Context())
		require.NoError(t, err)
		require.Len(t, gpus, 1, "the other GPU goes on")
		require.Len(t, faults, 1)
		require.ErrorIs(t, faults[0].Err, gpu.ErrTimeout)
		require.EqualError(t, faults[0].Err, "nvmlDeviceGetName on GPU 1: no answer within the deadline of 3s")
		assert.Equal(t, 3*time.Second, time.Since(start))

		started := d.count("nvmlDeviceGetHandleByIndex_v2")
		for range 5 {
			gpus, again, err := s.GPUs(t.Context())
			require.NoError(t, err)
			require.Len(t, gpus, 1)
			require.EqualError(t, again[0].Err, faults[0].Err.Error(), "the call that hangs is named")
		}
		assert.Equal(t, started, d.count("nvmlDeviceGetHandleByIndex_v2"), "no further call is made to a GPU that hangs")
		assert.Equal(t, 3*time.Second, time.Since(start), "and none waits")

		release()
		synctest.Wait()
		gpus, _, err = s.GPUs(t.Context())
		require.NoError(t, err)
		assert.Len(t, gpus, 2, "the GPU is back when its call came back")
	})
}

func TestGPUs_CallerGivesUp_ContextError(t *testing.T) {
	t.Parallel()
	d := newFakeDriver(1)
	s, err := open(t.Context(), d, library.NewGate(), Options{Deadline: time.Hour})
	require.NoError(t, err)
	release := d.gpus[0].block("nvmlDeviceGetUUID")
	t.Cleanup(release)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gaveUp := make(chan error, 1)
	go func() {
		_, _, err := s.GPUs(ctx)
		gaveUp <- err
	}()
	require.Eventually(t, func() bool { return d.count("nvmlDeviceGetUUID") > 0 }, time.Minute, time.Millisecond, "the call has begun")
	cancel()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	_, faults, err := s.GPUs(t.Context())
	require.NoError(t, err)
	require.Len(t, faults, 1)
	require.ErrorIs(t, faults[0].Err, gpu.ErrTimeout)
}

func TestSession_DriverLeavesAndReturns_Found(t *testing.T) {
	t.Parallel()
	d := newFakeDriver(2)
	s := openFake(t, d)
	_, _, err := s.GPUs(t.Context())
	require.NoError(t, err)
	d.loaded = false
	require.ErrorIs(t, s.Ping(t.Context()), gpu.ErrDriverNotLoaded)
	_, _, err = s.GPUs(t.Context())
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
	_, err = s.Driver(t.Context())
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
	require.NoError(t, s.Close(), "a driver that is gone has nothing to close")
	_, err = open(t.Context(), d, s.gate, Options{})
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
	require.EqualError(t, err, "nvmlInit_v2 on the driver: NVIDIA driver is not loaded (NVML DRIVER_NOT_LOADED)")
	d.loaded = true
	s, err = open(t.Context(), d, s.gate, Options{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
}

// TestSession_Closed_DriverNotLoaded: callers give up if the driver lacks a function, so the error must be another one.
func TestSession_Closed_DriverNotLoaded(t *testing.T) {
	t.Parallel()
	s, _ := seeing(t)
	require.NoError(t, s.Close())
	_, err := s.CreateInstance(t.Context(), firstGPU, 0, gpu.Placement{Size: 8})
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
	require.EqualError(t, err, "nvmlDeviceCreateGpuInstanceWithPlacement on GPU 0: NVIDIA driver is not loaded")
	_, err = s.MIGMode(t.Context(), firstGPU)
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
	_, _, err = s.GPUs(t.Context())
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
}

// TestClose_CallsInFlight_LibraryStays: running code must not be unloaded.
func TestClose_CallsInFlight_LibraryStays(t *testing.T) {
	t.Parallel()
	d := newFakeDriver(2)
	s, err := open(t.Context(), d, library.NewGate(), Options{})
	require.NoError(t, err)
	d.gpus[0].looked(t, s)
	const symbol = "nvmlDeviceGetMigMode"
	asked := d.count(symbol)
	var release []func()
	answers := make(chan error, len(d.gpus))
	for n, g := range d.gpus {
		release = append(release, g.block(symbol))
		t.Cleanup(release[n])
		id, _ := g.GetUUID()
		go func() {
			_, err := s.MIGMode(context.Background(), gpu.UUID(id))
			answers <- err
		}()
	}
	require.Eventually(t, func() bool { return d.count(symbol) == asked+2 }, time.Minute, time.Millisecond)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Ping(t.Context()), gpu.ErrDriverNotLoaded)
	assert.Zero(t, d.count("nvmlShutdown"))
	release[0]()
	require.NoError(t, <-answers, "it is answered as ever")
	assert.Zero(t, d.count("nvmlShutdown"), "there is another one")
	release[1]()
	require.NoError(t, <-answers)
	require.Eventually(t, func() bool { return d.count("nvmlShutdown") == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, s.Close())
	assert.Equal(t, 1, d.count("nvmlShutdown"))
}

func TestGPUs_DriverLeavesBetween_NotLoaded(t *testing.T) {
	t.Parallel()
	d := newFakeDriver(2)
	s := openFake(t, d)
	d.gpus[1].answer(nvml.ERROR_UNINITIALIZED, "nvmlDeviceGetName")
	_, faults, err := s.GPUs(t.Context())
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded, "not a fault of one GPU")
	assert.Empty(t, faults)
}

// Not parallel: it uses the process's own binding, which stays unchanged because nothing can be loaded.
func TestOpen_NoLibrary_Refused(t *testing.T) {
	for _, content := range []string{"not an ELF file", "neither"} {
		path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		_, err := Open(t.Context(), path, Options{})
		require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
		require.NotErrorIs(t, err, gpu.ErrDriverReplaced, "nothing was bound")
		require.ErrorContains(t, err, "the dynamic linker rejected the library")
	}
}

func TestCoresPerMultiprocessor_UnknownComputeCapability_Zero(t *testing.T) {
	t.Parallel()
	assert.Zero(t, coresPerMultiprocessor("99.9"))
}
