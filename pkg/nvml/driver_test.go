package nvml

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// fakeDriver is an NVML library that refuses calls as a real one does. Functions that no test needs come from a nil interface.
type fakeDriver struct {
	nvml.Interface

	mu      sync.Mutex
	version string
	loaded  bool
	inits   int
	// initialising is closed when Init begins, which then waits for initialise; nil waits for nothing.
	initialising, initialise chan struct{}
	// absent symbols are not in the library; in a real library, calling one kills the process.
	absent map[string]bool
	calls  map[string]int
	// returns are the codes of single calls, by symbol.
	returns map[string]nvml.Return
	gpus    []*fakeGPU
	// sets are the event sets that were created.
	sets []*fakeSet
}

// newFakeDriver returns a driver with that many H100s.
func newFakeDriver(count int) *fakeDriver {
	// Only the library can create the structs with names of profiles and with versions of the fabric's state.
	absent := map[string]bool{"nvmlDeviceGetGpuInstanceProfileInfoV": true, fabricInfoV: true, setMemoryLimits: true, getMemoryLimits: true}
	d := &fakeDriver{version: "580.95.05", loaded: true, absent: absent, calls: map[string]int{}}
	for index := range count {
		d.gpus = append(d.gpus, &fakeGPU{
			driver: d, index: index, cores: 16896, brand: nvml.BRAND_NVIDIA, architecture: nvml.DEVICE_ARCH_HOPPER,
			capability: computeCapability{9, 0}, name: "NVIDIA H100 80GB HBM3", mig: true, sickness: healthy(),
		})
	}
	return d
}

// call counts a call and returns the code for it in the present state of the driver.
func (d *fakeDriver) call(symbol string) nvml.Return {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[symbol]++
	switch {
	case d.absent[symbol]:
		panic("symbol lookup error: undefined symbol: " + symbol)
	case d.inits == 0:
		return nvml.ERROR_UNINITIALIZED
	case !d.loaded:
		return nvml.ERROR_DRIVER_NOT_LOADED
	}
	return d.returns[symbol]
}

func (d *fakeDriver) count(symbol string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[symbol]
}

// total counts all calls.
func (d *fakeDriver) total() (sum int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.calls {
		sum += n
	}
	return sum
}

func (d *fakeDriver) Extensions() nvml.ExtendedInterface { return d }

func (d *fakeDriver) LookupSymbol(symbol string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inits == 0 {
		return fmt.Errorf("error looking up %s: library not loaded", symbol)
	}
	if d.absent[symbol] {
		return fmt.Errorf("undefined symbol: %s", symbol)
	}
	return nil
}

// blockInit makes the first Init hang until release is called; begun is closed when it hangs.
func (d *fakeDriver) blockInit() (begun <-chan struct{}, release func()) {
	hangs, hang := make(chan struct{}), make(chan struct{})
	d.initialising, d.initialise = hangs, hang
	return hangs, func() { close(hang) }
}

// initialised returns how often the library was initialised and not shut down.
func (d *fakeDriver) initialised() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inits
}

func (d *fakeDriver) Init() nvml.Return {
	d.mu.Lock()
	begun, hang := d.initialising, d.initialise
	d.initialising, d.initialise = nil, nil
	d.mu.Unlock()
	if hang != nil {
		close(begun)
		<-hang
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.loaded {
		return nvml.ERROR_DRIVER_NOT_LOADED
	}
	d.inits++
	return nvml.SUCCESS
}

func (d *fakeDriver) Shutdown() nvml.Return {
	ret := d.call("nvmlShutdown")
	if ret == nvml.ERROR_UNINITIALIZED {
		return nvml.SUCCESS // as NVIDIA's library
	}
	if ret == nvml.SUCCESS {
		d.mu.Lock()
		d.inits--
		d.mu.Unlock()
	}
	return ret
}

func (d *fakeDriver) SystemGetDriverVersion() (string, nvml.Return) {
	return d.version, d.call("nvmlSystemGetDriverVersion")
}

func (d *fakeDriver) SystemGetCudaDriverVersion() (int, nvml.Return) {
	return 13000, d.call("nvmlSystemGetCudaDriverVersion")
}

func (d *fakeDriver) DeviceGetCount() (int, nvml.Return) {
	return len(d.gpus), d.call("nvmlDeviceGetCount_v2")
}

func (d *fakeDriver) DeviceGetHandleByIndex(index int) (nvml.Device, nvml.Return) {
	g := d.gpus[index]
	return g, g.call("nvmlDeviceGetHandleByIndex_v2")
}

// fakeGPU is a board of a fakeDriver.
type fakeGPU struct {
	nvml.Device

	driver       *fakeDriver
	index        int
	name         string
	brand        nvml.BrandType
	architecture nvml.DeviceArchitecture
	addressing   nvml.DeviceAddressingModeType
	capability   computeCapability
	cores        int
	mig          bool
	computeMode  nvml.ComputeMode
	partitioning
	sickness

	limits map[string]gpu.MemoryLimits // by cgroup

	mu sync.Mutex
	// returns are the codes of single calls, by symbol; hang blocks one until it is closed.
	returns map[string]nvml.Return
	hangs   string
	hang    chan struct{}
	// stuck counts the calls that hang now.
	stuck int
}

func (g *fakeGPU) call(symbol string) nvml.Return {
	ret := g.driver.call(symbol)
	g.mu.Lock()
	hang, hangs, special := g.hang, g.hangs, g.returns[symbol]
	g.mu.Unlock()
	if hang != nil && (hangs == symbol || hangs == anySymbol) {
		g.stick(1)
		<-hang
		g.stick(-1)
	}
	if ret == nvml.SUCCESS {
		return special
	}
	return ret
}

func (g *fakeGPU) stick(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stuck += n
}

// hanging counts the calls that hang now.
func (g *fakeGPU) hanging() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stuck
}

// answer lets calls of these symbols return a code from now on.
func (g *fakeGPU) answer(ret nvml.Return, symbols ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.returns = map[string]nvml.Return{}
	for _, symbol := range symbols {
		g.returns[symbol] = ret
	}
}

// anySymbol makes all calls hang.
const anySymbol = "any"

// block makes the calls of a symbol hang until the returned function is called.
func (g *fakeGPU) block(symbol string) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hangs, g.hang = symbol, make(chan struct{})
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		close(g.hang)
		g.hang = nil
	})
}

func (g *fakeGPU) GetUUID() (string, nvml.Return) {
	return fmt.Sprintf("GPU-%08d-0000", g.index), g.call("nvmlDeviceGetUUID")
}

func (g *fakeGPU) GetPciInfo() (nvml.PciInfo, nvml.Return) {
	return nvml.PciInfo{Bus: 0x3b + uint32(g.index)}, g.call("nvmlDeviceGetPciInfo_v3")
}

func (g *fakeGPU) GetMinorNumber() (int, nvml.Return) {
	ret := g.call("nvmlDeviceGetMinorNumber")
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.index + 10 + g.moved, ret
}

func (g *fakeGPU) GetName() (string, nvml.Return) { return g.name, g.call("nvmlDeviceGetName") }

func (g *fakeGPU) GetBrand() (nvml.BrandType, nvml.Return) {
	return g.brand, g.call("nvmlDeviceGetBrand")
}

func (g *fakeGPU) GetArchitecture() (nvml.DeviceArchitecture, nvml.Return) {
	return g.architecture, g.call("nvmlDeviceGetArchitecture")
}

func (g *fakeGPU) GetAddressingMode() (nvml.DeviceAddressingMode, nvml.Return) {
	return nvml.DeviceAddressingMode{Value: uint32(g.addressing)}, g.call("nvmlDeviceGetAddressingMode")
}

func (g *fakeGPU) GetCudaComputeCapability() (int, int, nvml.Return) {
	return g.capability.major, g.capability.minor, g.call("nvmlDeviceGetCudaComputeCapability")
}

func (g *fakeGPU) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	return nvml.Memory{Total: 81559 << 20}, g.call("nvmlDeviceGetMemoryInfo")
}

func (g *fakeGPU) GetPerformanceState() (nvml.Pstates, nvml.Return) {
	return nvml.PSTATE_0, g.call("nvmlDeviceGetPerformanceState")
}

func (g *fakeGPU) GetNumGpuCores() (int, nvml.Return) {
	return g.cores, g.call("nvmlDeviceGetNumGpuCores")
}

func (g *fakeGPU) GetMigMode() (int, int, nvml.Return) {
	ret := g.call("nvmlDeviceGetMigMode")
	if ret == nvml.SUCCESS && !g.mig {
		ret = nvml.ERROR_NOT_SUPPORTED
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.modes.current, g.modes.pending, ret
}

func (g *fakeGPU) GetGpuInstanceProfileInfo(profile int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
	ret := g.call("nvmlDeviceGetGpuInstanceProfileInfo")
	if ret == nvml.SUCCESS && profile != nvml.GPU_INSTANCE_PROFILE_7_SLICE {
		ret = nvml.ERROR_INVALID_ARGUMENT
	}
	return nvml.GpuInstanceProfileInfo{
		SliceCount: 7, InstanceCount: 1, MemorySizeMB: 80896, MultiprocessorCount: 128, CopyEngineCount: 8, DecoderCount: 7, JpegCount: 7, OfaCount: 1,
	}, ret
}

func (g *fakeGPU) GetGpuInstancePossiblePlacements(*nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstancePlacement, nvml.Return) {
	return []nvml.GpuInstancePlacement{{Start: 0, Size: 8}}, g.call("nvmlDeviceGetGpuInstancePossiblePlacements_v2")
}

// openFake opens a session on the driver, with a deadline that no call reaches on a busy machine.
func openFake(t *testing.T, d *fakeDriver) *Session {
	t.Helper()
	s, err := open(t.Context(), d, library.NewGate(), Options{Deadline: time.Hour})
	require.NoError(t, err)
	return s
}
