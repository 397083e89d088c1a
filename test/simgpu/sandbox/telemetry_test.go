package sandbox_test

import (
	"bufio"
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

const loadEnv = "SIMGPU_TEST_LOAD"

// settableClock makes the time of a node stand still between the steps of a test.
func settableClock(node *sandbox.Node) (pass func(time.Duration)) {
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	node.Model.SetClock(func() time.Time { return time.Unix(0, now.Load()) })
	return func(d time.Duration) { now.Add(int64(d)) }
}

// gpuLoad starts gpu-load, and returns when it works on the GPU.
func gpuLoad(t *testing.T, node *sandbox.Node, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), node.GPULoad(), args...)
	command.Env = []string{"LD_LIBRARY_PATH=" + node.LibraryDir()}
	require.NoError(t, startWorking(command))
	t.Cleanup(func() {
		_ = command.Process.Kill() // it may have exited
		_ = command.Wait()
	})
	return command
}

func startWorking(command *exec.Cmd) error {
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}

// telemetryReport contains the values that go-nvml reads of a GPU.
type telemetryReport struct {
	GPU, Memory           uint32
	Encoder, JPEG         nvml.Return
	SMClock, MaxClock     uint32
	Temperature, VTemp    int
	Energy                uint64
	Reasons               uint64
	BAR1                  uint64
	Violation             uint64
	Replays               int
	ECC                   uint64
	Remapped              nvml.Return
	Retired               nvml.Return
	Links                 nvml.EnableState
	Part, InfoROM         string
	License               nvml.Return
	Throughput            uint32
	Fields                [][]uint64 // return, type, value
	Samples               []nvml.ProcessUtilizationSample
	SamplesReturn         nvml.Return
	PIDs                  []uint32
	GPMSupported          uint32
	Metrics               []nvml.GpmMetric
	SampleReturn, TooMany nvml.Return
}

var readFields = []uint32{
	nvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION, nvml.FI_DEV_MEMORY_TEMP, nvml.FI_DEV_ECC_DBE_VOL_TOTAL, nvml.FI_DEV_RETIRED_DBE,
	nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 5000,
}

var readMetrics = []nvml.GpmMetricId{nvml.GPM_METRIC_SM_UTIL, nvml.GPM_METRIC_PCIE_RX_PER_SEC, nvml.GPM_METRIC_C2C_TOTAL_TX_PER_SEC}

// telemetry reads a GPU each time that the test resumes it.
func telemetry(c *child) error {
	if err := must("init", c.lib.Init()); err != nil {
		return err
	}
	device, ret := c.lib.DeviceGetHandleByIndex(0)
	if err := must("first GPU", ret); err != nil {
		return err
	}
	first, _ := c.lib.GpmSampleAlloc()
	second, _ := c.lib.GpmSampleAlloc()
	r := readSensors(device)
	r.SampleReturn = device.GpmSampleGet(first)
	if err := c.send(r); err != nil {
		return err
	}
	c.proceed()
	r = readSensors(device)
	r.SampleReturn = device.GpmSampleGet(second)
	get := &nvml.GpmMetricsGetType{Sample1: first, Sample2: second, NumMetrics: uint32(len(readMetrics))}
	for i, id := range readMetrics {
		get.Metrics[i].MetricId = uint32(id)
	}
	if ret := c.lib.GpmMetricsGet(get); ret == nvml.SUCCESS {
		r.Metrics = get.Metrics[:get.NumMetrics]
	}
	get.NumMetrics = 478
	r.TooMany = c.lib.GpmMetricsGet(get)
	if err := must("free", first.Free()); err != nil {
		return err
	}
	if err := c.send(r); err != nil {
		return err
	}
	return must("free", second.Free())
}

func readSensors(device nvml.Device) telemetryReport {
	var r telemetryReport
	rates, _ := device.GetUtilizationRates()
	r.GPU, r.Memory = rates.Gpu, rates.Memory
	_, _, r.Encoder = device.GetEncoderUtilization()
	_, _, r.JPEG = device.GetJpgUtilization()
	r.SMClock, _ = device.GetClockInfo(nvml.CLOCK_SM)
	r.MaxClock, _ = device.GetMaxClockInfo(nvml.CLOCK_SM)
	temperature, _ := device.GetTemperature(nvml.TEMPERATURE_GPU)
	versioned, _ := device.GetTemperatureV().V1()
	r.Temperature, r.VTemp = int(temperature), int(versioned.Temperature)
	r.Energy, _ = device.GetTotalEnergyConsumption()
	r.Reasons, _ = device.GetCurrentClocksEventReasons()
	bar1, _ := device.GetBAR1MemoryInfo()
	r.BAR1 = bar1.Bar1Total >> 20
	violation, _ := device.GetViolationStatus(nvml.PERF_POLICY_POWER)
	r.Violation = violation.ViolationTime
	r.Replays, _ = device.GetPcieReplayCounter()
	r.ECC, _ = device.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	_, _, _, _, r.Remapped = device.GetRemappedRows()
	_, r.Retired = device.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
	r.Links, _ = device.GetNvLinkState(17)
	r.Part, _ = device.GetBoardPartNumber()
	r.InfoROM, _ = device.GetInforomImageVersion()
	_, r.License = device.GetGridLicensableFeatures()
	r.Throughput, _ = device.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)
	values := make([]nvml.FieldValue, len(readFields))
	for i, id := range readFields {
		values[i] = nvml.FieldValue{FieldId: id, ScopeId: math.MaxUint32}
	}
	_ = device.GetFieldValues(values)
	for _, v := range values {
		r.Fields = append(r.Fields, []uint64{uint64(v.NvmlReturn), uint64(v.ValueType), binary.LittleEndian.Uint64(v.Value[:])})
	}
	r.Samples, r.SamplesReturn = device.GetProcessUtilization(0)
	processes, _ := device.GetComputeRunningProcesses()
	for _, p := range processes {
		r.PIDs = append(r.PIDs, p.Pid)
	}
	support, _ := device.GpmQueryDeviceSupport()
	r.GPMSupported = support.IsSupportedDevice
	return r
}

func TestGoNVML_Telemetry_FollowsLoad(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	pass := settableClock(node)
	child := start(t, node, "telemetry")
	var idle, busy telemetryReport
	child.receive(&idle)
	assert.Equal(t, nvml.ERROR_NOT_FOUND, idle.SamplesReturn)
	assert.Equal(t, []uint32{345, 1980, 0}, []uint32{idle.SMClock, idle.MaxClock, idle.GPU})
	assert.Equal(t, []int{29, 29}, []int{idle.Temperature, idle.VTemp})
	assert.Equal(t, []nvml.Return{0, 0, 0, nvml.ERROR_NOT_SUPPORTED, 0},
		[]nvml.Return{idle.Encoder, idle.JPEG, idle.Remapped, idle.Retired, idle.License})
	assert.Equal(t, []any{uint64(131072), nvml.FEATURE_ENABLED, "692-2G520-0200-000", "G520.0200.00.05"}, []any{idle.BAR1, idle.Links, idle.Part, idle.InfoROM})

	working := gpuLoad(t, node, "--memory", "2Gi", "--sm", "60")
	require.NoError(t, node.Model.SetLoad(node.Model.Identities()[0].UUID, model.Script{Steps: []model.Step{{Values: map[model.Quantity]float64{
		model.QuantityPower: 400, model.QuantityThrottlePower: 1, model.QuantityECCUncorrected: 2, model.QuantityPCIeReplays: 7, model.QuantityNVLinkTx: 100,
	}}}}))
	pass(10 * time.Second)
	child.resume()
	child.receive(&busy)
	child.end()
	pid := uint32(working.Process.Pid)
	assert.Equal(t, []uint32{60, 30, 1980}, []uint32{busy.GPU, busy.Memory, busy.SMClock})
	require.Len(t, busy.Samples, 1)
	assert.Equal(t, []uint32{pid, 60, 30}, []uint32{busy.Samples[0].Pid, busy.Samples[0].SmUtil, busy.Samples[0].MemUtil})
	assert.Equal(t, []uint32{pid}, busy.PIDs)
	assert.Equal(t, []uint64{idle.Energy + 4_000_000, 4, 10e9, 2, 7}, []uint64{busy.Energy, busy.Reasons, busy.Violation, busy.ECC, uint64(busy.Replays)})
	assert.Equal(t, uint32(120*1024), busy.Throughput)
	assert.Equal(t, [][]uint64{
		{0, 3, busy.Energy}, {0, 1, 62}, {0, 3, 2}, {uint64(nvml.ERROR_NOT_SUPPORTED), 0, 0}, {0, 3, 1000 * 1024},
		{uint64(nvml.ERROR_INVALID_ARGUMENT), 0, 0},
	}, busy.Fields)
	assert.Equal(t, uint32(1), busy.GPMSupported)
	require.Len(t, busy.Metrics, 3)
	assert.InDelta(t, 60, busy.Metrics[0].Value, 1e-6)
	assert.InDelta(t, 120, busy.Metrics[1].Value, 1e-6)
	assert.Equal(t, uint32(nvml.ERROR_NOT_SUPPORTED), busy.Metrics[2].NvmlReturn)
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, busy.TooMany)
	counts := node.Model.Calls.Of(child.command.Process.Pid).Counts
	assert.Equal(t, []uint64{2, 2, 1}, []uint64{counts["nvmlDeviceGetFieldValues"], counts["nvmlGpmSampleGet"], counts["nvmlGpmMetricsGet"]})
}

func TestGoNVML_TelemetryBeforeHopper_NoGPM(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "t4", 1))
	child := start(t, node, "telemetry")
	var r telemetryReport
	child.receive(&r)
	child.resume()
	child.receive(&r)
	child.end()
	assert.Zero(t, r.GPMSupported)
	assert.Equal(t, []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NOT_SUPPORTED, nvml.SUCCESS}, []nvml.Return{r.SampleReturn, r.Remapped, r.Retired})
	assert.Empty(t, r.Metrics)
}

// gpu-load occupies the GPU until it exits, and its share ends with it.
func TestGPULoad_Exit_UseEnds(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	working := gpuLoad(t, node, "--memory", "2Gi", "--sm", "12.5%")
	shown := node.Model.Snapshot().GPUs[0]
	assert.Equal(t, uint64(2048+512)<<20, shown.MemoryUsed)
	assert.InDelta(t, 12.5, shown.Load.Now["sm"], 1e-9)
	require.NoError(t, working.Process.Signal(syscall.SIGTERM))
	require.NoError(t, working.Wait())
	require.Eventually(t, func() bool { return node.Model.GPUs()[0].MemoryUsed == 0 }, time.Minute, time.Millisecond)
	assert.Zero(t, node.Model.Snapshot().GPUs[0].Load.Now["sm"])
	bad := exec.CommandContext(t.Context(), node.GPULoad(), "--sm", "101")
	assert.Error(t, bad.Run())
}

// namespacedProcesses lists the processes on a GPU from a pid namespace that contains one of them.
func namespacedProcesses(c *child) error {
	command := exec.Command(os.Getenv(loadEnv), "--sm", "20")
	if err := startWorking(command); err != nil {
		return err
	}
	if err := must("init", c.lib.Init()); err != nil {
		return err
	}
	device, _ := c.lib.DeviceGetHandleByIndex(0)
	if err := c.send(command.Process.Pid); err != nil {
		return err
	}
	c.proceed()
	if err := c.send(readSensors(device)); err != nil {
		return err
	}
	c.proceed() // the process exits with the first one of its namespace
	return nil
}

// A process sees the processes in its own pid namespace and below, with their numbers there.
func TestGoNVML_PIDNamespace_OwnProcessesOnly(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	pass := settableClock(node)
	outside := gpuLoad(t, node, "--sm", "30")
	t.Setenv(loadEnv, node.GPULoad())
	t.Setenv("LD_LIBRARY_PATH", node.LibraryDir())
	inside := startIn(t, node, "namespacedProcesses", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
	var pid uint32
	inside.receive(&pid)
	pass(time.Second)
	inside.resume()
	var r telemetryReport
	inside.receive(&r)
	assert.Equal(t, []uint32{pid}, r.PIDs)
	require.Len(t, r.Samples, 1)
	assert.Equal(t, pid, r.Samples[0].Pid)
	assert.Equal(t, uint32(50), r.GPU, "the value of the GPU includes all processes")
	all := start(t, node, "telemetry")
	all.receive(&r)
	assert.Len(t, r.PIDs, 2)
	assert.Contains(t, r.PIDs, uint32(outside.Process.Pid))
	pass(time.Second)
	all.resume()
	all.receive(&r)
	all.end()
	inside.resume()
	inside.end()
}

// A client of MPS uses at most its percentage of the multiprocessors.
func TestGPULoad_MPSClient_CappedAtPercentage(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	m := newMPS(t, node)
	m.start()
	command := exec.CommandContext(t.Context(), node.GPULoad(), "--sm", "60")
	command.Env = append(m.env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25")
	require.NoError(t, startWorking(command))
	shares := map[bool]float64{}
	for _, p := range node.Model.GPUs()[0].Processes {
		shares[p.MPSClient] = p.SM
	}
	assert.Equal(t, map[bool]float64{false: 0, true: 25}, shares)
	require.NoError(t, command.Process.Kill())
	_ = command.Wait() // killed
}
