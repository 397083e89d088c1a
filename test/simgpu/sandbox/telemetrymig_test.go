package sandbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// migTelemetryReport contains the values that go-nvml reads in MIG mode.
type migTelemetryReport struct {
	Refused             []nvml.Return // of the GPU: rates, encoder, decoder, JPEG, OFA, process utilization, remapped rows
	OfDevice            []nvml.Return // of the MIG device: rates, power, clock, energy, process utilization, fields
	Memory              uint64        // of the MIG device, MiB
	DevicePIDs, GPUPIDs []uint32
	GPUInstances        []uint32
	Power               nvml.Return
	SM                  []float64 // of the MIG device by its handle, of the GPU instance by its id, of the GPU
	Destroyed           []nvml.Return
}

// migTelemetry reads a GPU in MIG mode and its only MIG device. It destroys the device while it is sampled, and afterwards.
func migTelemetry(c *child) error {
	if err := must("init", c.lib.Init()); err != nil {
		return err
	}
	gpu, _ := c.lib.DeviceGetHandleByIndex(0)
	mig, ret := gpu.GetMigDeviceHandleByIndex(0)
	if err := must("MIG device", ret); err != nil {
		return err
	}
	instance, _ := mig.GetGpuInstanceId()
	var samples [6]nvml.GpmSample
	take := func(from int) error {
		return errors.Join(must("sample", mig.GpmSampleGet(samples[from])),
			must("instance", gpu.GpmMigSampleGet(instance, samples[from+1])), must("GPU", gpu.GpmSampleGet(samples[from+2])))
	}
	for i := range samples {
		samples[i], _ = c.lib.GpmSampleAlloc()
	}
	if err := errors.Join(take(0), c.send(true)); err != nil {
		return err
	}
	c.proceed()
	if err := take(3); err != nil {
		return err
	}
	r := readMIG(gpu, mig)
	for i := range 3 {
		get := &nvml.GpmMetricsGetType{Sample1: samples[i], Sample2: samples[3+i], NumMetrics: 1}
		get.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_SM_UTIL)
		if err := must("metrics", c.lib.GpmMetricsGet(get)); err != nil {
			return err
		}
		r.SM = append(r.SM, get.Metrics[0].Value)
	}
	if err := c.send(r); err != nil {
		return err
	}
	c.proceed()
	gi, _ := gpu.GetGpuInstanceById(instance)
	ci, _ := gi.GetComputeInstanceById(0)
	r.Destroyed = []nvml.Return{ci.Destroy(), gi.Destroy()}
	for _, sample := range samples {
		r.Destroyed = append(r.Destroyed, sample.Free())
	}
	r.Destroyed = append(r.Destroyed, gi.Destroy())
	return c.send(r.Destroyed)
}

func readMIG(gpu, mig nvml.Device) migTelemetryReport {
	var r migTelemetryReport
	refused := func(list *[]nvml.Return, code nvml.Return) { *list = append(*list, code) }
	for list, device := range map[*[]nvml.Return]nvml.Device{&r.Refused: gpu, &r.OfDevice: mig} {
		_, ret := device.GetUtilizationRates()
		refused(list, ret)
		_, ret = device.GetProcessUtilization(0)
		refused(list, ret)
		_, _, ret = device.GetEncoderUtilization()
		refused(list, ret)
		_, _, ret = device.GetOfaUtilization()
		refused(list, ret)
		_, _, _, _, ret = device.GetRemappedRows()
		refused(list, ret)
	}
	_, ret := mig.GetPowerUsage()
	refused(&r.OfDevice, ret)
	_, ret = mig.GetTotalEnergyConsumption()
	refused(&r.OfDevice, ret)
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_POWER_INSTANT}}
	refused(&r.OfDevice, mig.GetFieldValues(values))
	refused(&r.OfDevice, nvml.Return(values[0].NvmlReturn))
	_, r.Power = gpu.GetPowerUsage()
	memory, _ := mig.GetMemoryInfo_v2()
	r.Memory = memory.Used >> 20
	of := func(device nvml.Device) (pids []uint32) {
		list, _ := device.GetComputeRunningProcesses()
		for _, p := range list {
			pids = append(pids, p.Pid)
			r.GPUInstances = append(r.GPUInstances, p.GpuInstanceId)
		}
		return pids
	}
	r.DevicePIDs, r.GPUPIDs = of(mig), of(gpu)
	return r
}

func TestGoNVML_TelemetryInMIGMode_InstanceByGPMOnly(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	pass := settableClock(node)
	for _, args := range [][]string{{"-i", "0", "-mig", "1"}, {"mig", "-cgi", "19", "-C"}} {
		out, code := smi(t, node, args...)
		require.Zero(t, code, out)
	}
	working := gpuLoad(t, node, "--memory", "1Gi", "--sm", "66")
	child := start(t, node, "migTelemetry")
	var ready bool
	child.receive(&ready)
	pass(time.Second)
	child.resume()
	var r migTelemetryReport
	child.receive(&r)
	no := nvml.ERROR_NOT_SUPPORTED
	assert.Equal(t, []nvml.Return{no, no, no, no, no}, r.Refused)
	assert.Equal(t, []nvml.Return{no, no, no, no, no, no, no, nvml.SUCCESS, no}, r.OfDevice)
	assert.Equal(t, nvml.SUCCESS, r.Power)
	assert.Equal(t, uint64(1024+512), r.Memory)
	pid := uint32(working.Process.Pid)
	assert.Equal(t, [][]uint32{{pid}, {pid}, {7, 7}}, [][]uint32{r.DevicePIDs, r.GPUPIDs, r.GPUInstances})
	assert.InDeltaSlice(t, []float64{66, 66, 8}, r.SM, 1e-6)

	require.NoError(t, working.Process.Kill())
	_ = working.Wait() // killed
	require.Eventually(t, func() bool { return node.Model.GPUs()[0].MemoryUsed == 0 }, time.Minute, time.Millisecond)
	child.resume()
	var destroyed []nvml.Return
	child.receive(&destroyed)
	child.end()
	assert.Equal(t, []nvml.Return{0, nvml.ERROR_IN_USE, 0, 0, 0, 0, 0, 0, 0}, destroyed)
	assert.Empty(t, node.Model.GPUs()[0].MIGDevices)
}
