package sampling

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// bare is an NVML library with all symbols. A test sets its field values and GPM metrics.
type bare struct {
	nvml.Interface
	metrics func(*nvml.GpmMetricsGetType)
	// freed lists the objects that were freed before the library was shut down, in order.
	freed []string
}

func (b *bare) Extensions() nvml.ExtendedInterface { return b }
func (b *bare) LookupSymbol(string) error          { return nil }
func (b *bare) Init() nvml.Return                  { return nvml.SUCCESS }

func (b *bare) Shutdown() nvml.Return {
	b.freed = append(b.freed, "library")
	return nvml.SUCCESS
}

func (b *bare) GpmSampleAlloc() (nvml.GpmSample, nvml.Return) { return &sample{b}, nvml.SUCCESS }
func (b *bare) EventSetCreate() (nvml.EventSet, nvml.Return) {
	return &eventSetOf{lib: b}, nvml.SUCCESS
}

func (b *bare) GpmMetricsGet(r *nvml.GpmMetricsGetType) nvml.Return {
	b.metrics(r)
	return nvml.SUCCESS
}

// eventSetOf never returns an event.
type eventSetOf struct {
	nvml.EventSet
	lib *bare
}

func (*eventSetOf) Wait(uint32) (nvml.EventData, nvml.Return) {
	return nvml.EventData{}, nvml.ERROR_TIMEOUT
}

func (e *eventSetOf) Free() nvml.Return {
	e.lib.freed = append(e.lib.freed, "event set")
	return nvml.SUCCESS
}

type sample struct{ lib *bare }

func (s *sample) Free() nvml.Return {
	s.lib.freed = append(s.lib.freed, "sample")
	return nvml.SUCCESS
}

func (*sample) Get(nvml.Device) nvml.Return         { return nvml.SUCCESS }
func (*sample) MigGet(nvml.Device, int) nvml.Return { return nvml.SUCCESS }

// bareGPU returns field values and processes.
type bareGPU struct {
	nvml.Device
	fields                 func([]nvml.FieldValue)
	asked                  int
	compute, mps, graphics []nvml.ProcessInfo
	utilization            []nvml.ProcessUtilizationSample
}

func (g *bareGPU) GetFieldValues(values []nvml.FieldValue) nvml.Return {
	g.asked++
	_ = values[0] // as the real one does
	g.fields(values)
	return nvml.SUCCESS
}

func (g *bareGPU) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return g.compute, nvml.SUCCESS
}

func (g *bareGPU) GetMPSComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return g.mps, nvml.SUCCESS
}

func (g *bareGPU) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return g.graphics, nvml.SUCCESS
}

func (g *bareGPU) GetProcessUtilization(lastSeen uint64) (later []nvml.ProcessUtilizationSample, ret nvml.Return) {
	for _, s := range g.utilization {
		if s.TimeStamp > lastSeen {
			later = append(later, s)
		}
	}
	if len(later) == 0 {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return later, nvml.SUCCESS
}

// bareDriver returns an open driver with that GPU, "GPU-0".
func bareDriver(t *testing.T, lib *bare, g *bareGPU) *Driver {
	t.Helper()
	session, err := library.Initialise(t.Context(), lib, library.NewGate(), time.Minute)
	require.NoError(t, err)
	d := New(Options{Deadline: time.Minute})
	d.session, d.lib = session, lib
	d.devices = map[gpu.UUID]*device{"GPU-0": {
		driver: d, on: library.GPUAt(0), handle: g, identity: metrics.Identity{UUID: "GPU-0", GPM: true}, unsupported: map[string]bool{},
	}}
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func fieldValue(v *nvml.FieldValue, kind nvml.ValueType, bits uint64) {
	v.NvmlReturn, v.ValueType = uint32(nvml.SUCCESS), uint32(kind)
	binary.NativeEndian.PutUint64(v.Value[:], bits)
}

// TestFieldValues_NotAvailable_NoValue: a blank, a return code or an invalid number counts as no value, never as 0.
func TestFieldValues_NotAvailable_NoValue(t *testing.T) {
	t.Parallel()
	g := &bareGPU{fields: func(values []nvml.FieldValue) {
		for i := range values {
			switch v := &values[i]; v.FieldId {
			case nvml.FI_DEV_POWER_AVERAGE:
				fieldValue(v, nvml.VALUE_TYPE_UNSIGNED_INT, 250_000)
			case nvml.FI_DEV_MEMORY_TEMP:
				fieldValue(v, nvml.VALUE_TYPE_UNSIGNED_INT, math.MaxUint32)
			case nvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION:
				fieldValue(v, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, math.MaxUint64)
			case nvml.FI_DEV_ECC_SBE_VOL_TOTAL:
				fieldValue(v, nvml.VALUE_TYPE_DOUBLE, math.Float64bits(math.NaN()))
			case nvml.FI_DEV_ECC_DBE_VOL_TOTAL:
				v.NvmlReturn = uint32(nvml.ERROR_NO_DATA)
			case nvml.FI_DEV_PCIE_REPLAY_COUNTER:
				fieldValue(v, nvml.VALUE_TYPE_SIGNED_INT, 3)
			case nvml.FI_DEV_RETIRED_SBE: // not filled in
			default:
				v.NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
			}
		}
	}}
	d := bareDriver(t, &bare{}, g)
	device := d.devices["GPU-0"]
	var all metrics.FieldSet
	for f := range sources {
		all.Add(f)
	}
	for range 3 { // until no source is left to try
		var values metrics.Values
		require.NoError(t, device.fields.read(t.Context(), device, all, &values))
		assert.Equal(t, map[metrics.Field]float64{metrics.FieldPowerUsage: 250, metrics.FieldPCIeReplays: 3}, valuesOf(&values))
	}
	assert.Len(t, device.fields.values, 7, "what is not supported is not asked again, what has no value now is")
	assert.Equal(t, 3, g.asked)

	g.asked = 0
	require.NoError(t, device.fields.read(t.Context(), device, metrics.NewFieldSet(metrics.FieldClockSM), &metrics.Values{}))
	require.NoError(t, device.fields.read(t.Context(), device, metrics.NewFieldSet(metrics.FieldRecoveryAction), &metrics.Values{}))
	assert.Zero(t, g.asked, "an empty list is never asked for")
}

func TestSample_NotAvailable_NoValue(t *testing.T) {
	t.Parallel()
	answers := map[uint32]float64{1: 50, 2: 100.5, 3: math.NaN(), 4: -1, 10: 100, 20: 2, 30: 40, 31: 60, 32: 120, 40: 300}
	lib := &bare{metrics: func(r *nvml.GpmMetricsGetType) {
		for i := range r.NumMetrics {
			if v, known := answers[r.Metrics[i].MetricId]; known {
				r.Metrics[i].Value, r.Metrics[i].NvmlReturn = v, uint32(nvml.SUCCESS)
			}
		}
	}}
	d := bareDriver(t, lib, &bareGPU{})
	var values metrics.Values
	require.NoError(t, d.Sample(t.Context(), "GPU-0", 5, allFields(), false, &values))
	assert.Empty(t, valuesOf(&values), "the first sample is a baseline")
	require.NoError(t, d.Sample(t.Context(), "GPU-0", 5, allFields(), false, &values))
	assert.Equal(t, map[metrics.Field]float64{
		metrics.FieldUtilization: 0.5, metrics.FieldGraphicsActive: 0.5, metrics.FieldDRAMActive: 1, metrics.FieldPCIeTransmitRate: 2 << 20,
		metrics.FieldUtilizationDecoder: 0.5,
	}, valuesOf(&values))
	values = metrics.Values{}
	require.NoError(t, d.Sample(t.Context(), "GPU-0", 5, allFields(), true, &values))
	assert.Empty(t, valuesOf(&values), "a baseline, as asked")
	request := d.devices["GPU-0"].gpm.request
	require.NoError(t, d.Sample(t.Context(), "GPU-0", wholeGPU, allFields(), false, &values))
	assert.Same(t, request, d.devices["GPU-0"].gpm.request)
}

func TestProcesses_SeveralLists_EachOnce(t *testing.T) {
	t.Parallel()
	on := func(pid uint32, memory uint64) nvml.ProcessInfo {
		return nvml.ProcessInfo{Pid: pid, UsedGpuMemory: memory, GpuInstanceId: noInstance, ComputeInstanceId: noInstance}
	}
	g := &bareGPU{
		compute:  []nvml.ProcessInfo{on(10, 100), on(11, 200), on(12, math.MaxUint64), on(13, 30)},
		graphics: []nvml.ProcessInfo{on(10, 100), on(14, 50)},
		mps:      []nvml.ProcessInfo{on(11, 200)},
	}
	d := bareDriver(t, &bare{}, g)
	list, err := d.Processes(t.Context(), "GPU-0", time.Second)
	require.NoError(t, err)
	assert.False(t, list.Hidden)
	processes := list.Processes
	require.Len(t, processes, 5)
	assert.InDelta(t, 100, processes[0].MemoryBytes, 0)
	assert.True(t, math.IsNaN(processes[2].MemoryBytes))
	assert.Equal(t, []bool{true, false, true, true, true}, []bool{
		processes[0].ServesClients, processes[1].ServesClients, processes[2].ServesClients, processes[3].ServesClients, processes[4].ServesClients,
	}, "a client of MPS is no server")

	g.compute = append(g.compute, on(0, 70))
	g.utilization = []nvml.ProcessUtilizationSample{
		{Pid: 10, TimeStamp: 5, SmUtil: 20}, {Pid: 10, TimeStamp: 6, SmUtil: 40}, {Pid: 11, TimeStamp: 6, SmUtil: 101},
	}
	list, err = d.Processes(t.Context(), "GPU-0", time.Second)
	require.NoError(t, err)
	assert.True(t, list.Hidden, "pid 0 is a process that this namespace does not show")
	processes = list.Processes
	require.Len(t, processes, 5)
	assert.InDelta(t, 0.3, processes[0].SM, 1e-9, "the mean of the samples")
	assert.True(t, math.IsNaN(processes[1].SM), "above 100 % is no value")
	assert.True(t, math.IsNaN(processes[3].SM), "the driver has no sample of it")
	list, err = d.Processes(t.Context(), "GPU-0", time.Second)
	require.NoError(t, err)
	assert.True(t, math.IsNaN(list.Processes[0].SM), "these samples were counted before")
	assert.True(t, list.Sampled)
}

func TestClose_SamplesAndEventSet_FreedBeforeShutdown(t *testing.T) {
	t.Parallel()
	lib := &bare{}
	d := bareDriver(t, lib, &bareGPU{})
	require.NoError(t, d.Sample(t.Context(), "GPU-0", 5, allFields(), true, &metrics.Values{}))
	_, _, err := d.NextXID(t.Context(), time.Millisecond)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	assert.Equal(t, []string{"sample", "sample", "event set", "library"}, lib.freed)
	require.NoError(t, d.Close(), "closed is closed")
}
