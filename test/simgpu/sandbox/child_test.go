package sandbox_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// A process keeps the first libnvidia-ml that it loads, so each scenario runs
// in a child process: this test binary with the scenario in its environment.
const (
	scenarioEnv = "SIMGPU_TEST_SCENARIO"
	libraryEnv  = "SIMGPU_TEST_LIBRARY"
)

// scenarios use production go-nvml; each prints one JSON value per line.
var scenarios = map[string]func(*child) error{
	"survey":           survey,
	"parallel":         parallel,
	"reload":           reload,
	"xid":              waitForXID,
	"init":             initOnly,
	"attach":           attach,
	"mig":              partition,
	"crash":            dieInCreate,
	"partitionCompute": partitionCompute,
	"processes":        listProcesses,
	"telemetry":        telemetry,
	"migTelemetry":     migTelemetry,
	"memoryLimits":     limitMemory,
	"protectMemory":    protectMemory,

	"namespacedProcesses": namespacedProcesses,
}

func TestMain(m *testing.M) {
	scenario := scenarios[os.Getenv(scenarioEnv)]
	if scenario == nil {
		os.Exit(sandbox.OnGPUMachine(m))
	}
	c := &child{
		lib: nvml.New(nvml.WithLibraryPath(os.Getenv(libraryEnv))),
		in:  bufio.NewScanner(os.Stdin), out: json.NewEncoder(os.Stdout),
	}
	if err := scenario(c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child is the scenario's end of the pipes.
type child struct {
	lib nvml.Interface
	in  *bufio.Scanner
	out *json.Encoder
}

func (c *child) send(v any) error { return c.out.Encode(v) }

// proceed waits until the test resumes the scenario.
func (c *child) proceed() { c.in.Scan() }

// parent is the test's end of the pipes.
type parent struct {
	t       *testing.T
	command *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

func start(t *testing.T, node *sandbox.Node, scenario string) *parent {
	t.Helper()
	return startIn(t, node, scenario, nil)
}

func startIn(t *testing.T, node *sandbox.Node, scenario string, attributes *syscall.SysProcAttr) *parent {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), self)
	command.Env = append(os.Environ(), scenarioEnv+"="+scenario, libraryEnv+"="+node.Library())
	command.Stderr = os.Stderr
	command.SysProcAttr = attributes
	in, err := command.StdinPipe()
	require.NoError(t, err)
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	return &parent{t: t, command: command, in: in, out: json.NewDecoder(out)}
}

func (p *parent) receive(v any) {
	p.t.Helper()
	require.NoError(p.t, p.out.Decode(v))
}

func (p *parent) resume() {
	p.t.Helper()
	_, err := fmt.Fprintln(p.in)
	require.NoError(p.t, err)
}

func (p *parent) end() {
	p.t.Helper()
	require.NoError(p.t, p.in.Close())
	require.NoError(p.t, p.command.Wait())
}

func must(what string, ret nvml.Return) error {
	if ret != nvml.SUCCESS {
		return fmt.Errorf("%s: %d: %w", what, int(ret), ret)
	}
	return nil
}

// gpuReport contains the values that go-nvml reads of one GPU.
type gpuReport struct {
	UUID, Name, BusID    string
	Index, Minor, Cores  int
	Brand, Architecture  int
	Major, MinorCC       int
	Total, TotalV2       uint64
	Reserved, Used       uint64
	PCIDevice            uint32
	MaxMIG               int
	MIGMode, Attributes  nvml.Return
	NUMA, Processes, Fan nvml.Return
	IsMIG                bool
	ByUUID, ByBusID      bool
	Limit                uint32
	Engines              []uint32
}

type nodeReport struct {
	Driver, NVML string
	CUDA         int
	GPUs         []gpuReport
	Symbols      map[string]bool
}

var lookedUp = []string{
	"nvmlInit_v2", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetGpuFabricInfoV",
	"nvmlDeviceGetAddressingMode", "nvmlDeviceSetMemoryLimits_v1",
}

func survey(c *child) error {
	if err := must("init", c.lib.Init()); err != nil {
		return err
	}
	report := nodeReport{Symbols: map[string]bool{}}
	for _, name := range lookedUp {
		report.Symbols[name] = c.lib.Extensions().LookupSymbol(name) == nil
	}
	report.Driver, _ = c.lib.SystemGetDriverVersion()
	report.NVML, _ = c.lib.SystemGetNVMLVersion()
	report.CUDA, _ = c.lib.SystemGetCudaDriverVersion()
	count, ret := c.lib.DeviceGetCount()
	if err := must("count", ret); err != nil {
		return err
	}
	for i := range count {
		device, ret := c.lib.DeviceGetHandleByIndex(i)
		if err := must("handle", ret); err != nil {
			return err
		}
		report.GPUs = append(report.GPUs, reportOf(c.lib, device))
	}
	if err := must("shutdown", c.lib.Shutdown()); err != nil {
		return err
	}
	return c.send(report)
}

func reportOf(lib nvml.Interface, device nvml.Device) gpuReport {
	var r gpuReport
	r.UUID, _ = device.GetUUID()
	r.Name, _ = device.GetName()
	r.Index, _ = device.GetIndex()
	r.Minor, _ = device.GetMinorNumber()
	r.Cores, _ = device.GetNumGpuCores()
	brand, _ := device.GetBrand()
	architecture, _ := device.GetArchitecture()
	r.Brand, r.Architecture = int(brand), int(architecture)
	r.Major, r.MinorCC, _ = device.GetCudaComputeCapability()
	memory, _ := device.GetMemoryInfo()
	v2, _ := device.GetMemoryInfo_v2()
	r.Total, r.TotalV2, r.Reserved, r.Used = memory.Total, v2.Total, v2.Reserved, v2.Used
	pci, _ := device.GetPciInfo()
	r.BusID, r.PCIDevice = cText(pci.BusId[:]), pci.PciDeviceId
	r.MaxMIG, _ = device.GetMaxMigDeviceCount()
	_, _, r.MIGMode = device.GetMigMode()
	_, r.Attributes = device.GetAttributes()
	_, r.Fan = device.GetFanSpeed()
	if lib.Extensions().LookupSymbol("nvmlDeviceGetNumaNodeId") == nil {
		_, r.NUMA = device.GetNumaNodeId()
	}
	_, r.Processes = device.GetComputeRunningProcesses()
	r.IsMIG, _ = device.IsMigDeviceHandle()
	_, ret := lib.DeviceGetHandleByUUID(r.UUID)
	r.ByUUID = ret == nvml.SUCCESS
	_, ret = lib.DeviceGetHandleByPciBusId(r.BusID)
	r.ByBusID = ret == nvml.SUCCESS
	r.Limit, _ = device.GetEnforcedPowerLimit()
	for _, profile := range []int{nvml.GPU_INSTANCE_PROFILE_7_SLICE, nvml.GPU_INSTANCE_PROFILE_4_SLICE} {
		if info, ret := device.GetGpuInstanceProfileInfo(profile); ret == nvml.SUCCESS {
			r.Engines = append(r.Engines, info.SliceCount, info.MultiprocessorCount, info.CopyEngineCount, info.DecoderCount, info.EncoderCount, info.JpegCount, info.OfaCount)
			break // the first one spans the GPU
		}
	}
	return r
}

func cText[T ~int8 | ~uint8](chars []T) string {
	var b []byte
	for _, c := range chars {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

const (
	parallelCallers = 16
	callsEach       = 50
)

// parallel calls from many threads while another one waits for an event.
func parallel(c *child) error {
	if err := must("init", c.lib.Init()); err != nil {
		return err
	}
	device, ret := c.lib.DeviceGetHandleByIndex(0)
	if err := must("handle", ret); err != nil {
		return err
	}
	set, ret := c.lib.EventSetCreate()
	if err := must("event set", ret); err != nil {
		return err
	}
	if err := must("register", device.RegisterEvents(nvml.EventTypeXidCriticalError, set)); err != nil {
		return err
	}
	waited := make(chan nvml.Return)
	go func() {
		_, ret := set.Wait(60000)
		waited <- ret
	}()
	failed := make(chan error, parallelCallers)
	var callers sync.WaitGroup
	for range parallelCallers {
		callers.Go(func() {
			for range callsEach {
				if _, ret := device.GetUUID(); ret != nvml.SUCCESS {
					failed <- must("uuid", ret)
					return
				}
			}
		})
	}
	callers.Wait()
	close(failed)
	if err := <-failed; err != nil {
		return err
	}
	if err := c.send(os.Getpid()); err != nil {
		return err
	}
	return must("wait", <-waited)
}

// reload reports the results of NVML after each step of the test.
func reload(c *child) error {
	ret := c.lib.Init()
	device, _ := c.lib.DeviceGetHandleByIndex(0)
	for range 3 {
		if err := c.send(ret); err != nil {
			return err
		}
		c.proceed()
		_, ret = device.GetUUID()
	}
	steps := []nvml.Return{ret, c.lib.Shutdown(), c.lib.Init()}
	device, ret = c.lib.DeviceGetHandleByIndex(0)
	steps = append(steps, ret)
	_, ret = device.GetUUID()
	return c.send(append(steps, ret))
}

func initOnly(c *child) error {
	ret := c.lib.Init()
	if err := c.send(ret); err != nil {
		return err
	}
	count, _ := c.lib.DeviceGetCount()
	return c.send(count)
}

func waitForXID(c *child) error {
	if err := must("init", c.lib.Init()); err != nil {
		return err
	}
	device, _ := c.lib.DeviceGetHandleByIndex(1)
	set, _ := c.lib.EventSetCreate()
	if err := must("register", device.RegisterEvents(nvml.EventTypeXidCriticalError, set)); err != nil {
		return err
	}
	if err := c.send(true); err != nil {
		return err
	}
	data, ret := set.Wait(60000)
	if err := must("wait", ret); err != nil {
		return err
	}
	uuid, _ := data.Device.GetUUID()
	if err := must("free", set.Free()); err != nil {
		return err
	}
	return c.send([]any{uuid, data.EventType, data.EventData, data.GpuInstanceId})
}
