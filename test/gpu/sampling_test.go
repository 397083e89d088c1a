package gpu_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	vendor "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/exporter/sampling"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

const (
	// testedLibrary and testedSMI select another driver than this machine's for the checks.
	testedLibrary, testedSMI = "PRISM_TEST_LIBRARY", "PRISM_TEST_SMI"
	// sampleGap is the time between two samples of GPM that are compared.
	sampleGap = 250 * time.Millisecond
	// wholeGPU is the target of GPM for a whole GPU, not a GPU instance.
	wholeGPU = -1
	// mebi and mega are nvidia-smi's units of memory and clocks.
	mebi, mega = 1 << 20, 1e6
)

// driverFiles returns the driver's library and its nvidia-smi. It skips the test if there are none.
func driverFiles(t *testing.T) (library, smi string) {
	t.Helper()
	if library = os.Getenv(testedLibrary); library != "" {
		return library, os.Getenv(testedSMI)
	}
	if _, err := os.Stat("/proc/driver/nvidia/version"); errors.Is(err, os.ErrNotExist) {
		t.Skip("no NVIDIA kernel driver on this machine")
	}
	root, err := hostfs.New("/").FindDriver(os.Getenv("PRISM_DRIVER_ROOT"))
	require.NoError(t, err)
	smi = filepath.Join(root.HostPath, "usr/bin/nvidia-smi")
	if _, err := os.Stat(smi); err != nil {
		smi, err = exec.LookPath("nvidia-smi")
		require.NoError(t, err)
	}
	return root.Library, smi
}

// compared is a field of the sampling adapter that is compared with a field of nvidia-smi.
type compared struct {
	field metrics.Field
	query string
	// unit is nvidia-smi's unit in base units.
	unit float64
	// tolerance is how far nvidia-smi's value may be from all values that were read around it, in its unit, or as a share of it: a constant
	// value is only rounded.
	tolerance, share float64
}

var comparedFields = []compared{
	{field: metrics.FieldMemoryTotal, query: "memory.total", unit: mebi, tolerance: 1},
	{field: metrics.FieldMemoryUsed, query: "memory.used", unit: mebi, tolerance: 2, share: 0.05},
	{field: metrics.FieldMemoryFree, query: "memory.free", unit: mebi, tolerance: 2, share: 0.05},
	{field: metrics.FieldMemoryReserved, query: "memory.reserved", unit: mebi, tolerance: 2, share: 0.05},
	{field: metrics.FieldUtilization, query: "utilization.gpu", unit: 0.01, tolerance: 25},
	{field: metrics.FieldUtilizationMemory, query: "utilization.memory", unit: 0.01, tolerance: 25},
	{field: metrics.FieldTemperatureGPU, query: "temperature.gpu", unit: 1, tolerance: 5},
	{field: metrics.FieldTemperatureMemory, query: "temperature.memory", unit: 1, tolerance: 5},
	{field: metrics.FieldPowerUsage, query: "power.draw", unit: 1, tolerance: 10, share: 0.25},
	{field: metrics.FieldPowerLimit, query: "enforced.power.limit", unit: 1, tolerance: 1},
	{field: metrics.FieldClockSM, query: "clocks.sm", unit: mega, tolerance: 50, share: 0.5},
	{field: metrics.FieldClockMemory, query: "clocks.mem", unit: mega, tolerance: 50, share: 0.5},
	{field: metrics.FieldClockGraphics, query: "clocks.gr", unit: mega, tolerance: 50, share: 0.5},
	{field: metrics.FieldClockVideo, query: "clocks.video", unit: mega, tolerance: 50, share: 0.5},
	{field: metrics.FieldPCIeLinkWidth, query: "pcie.link.width.current", unit: 1},
	{field: metrics.FieldECCCorrectedVolatile, query: "ecc.errors.corrected.volatile.total", unit: 1, tolerance: 1},
	{field: metrics.FieldECCUncorrectedVolatile, query: "ecc.errors.uncorrected.volatile.total", unit: 1},
}

// sampled is a fixture: the results of the checks of a GPU, without its names.
type sampled struct {
	Product, Architecture, Driver, CUDA string
	MIGMode, GPM                        bool
	// Values are the adapter's values by the metric's name, in base units; SMI the values of nvidia-smi by query, as printed.
	Values map[string]float64
	SMI    map[string]string
	// GPMIDs are the ids of GPM with a value on the whole GPU.
	GPMIDs []int
	// Calls are the durations of calls, in microseconds.
	Calls map[string]cost
}

// cost is the median and the maximum duration of a call.
type cost struct{ Median, Most float64 }

// openSampling opens the driver for sampling.
func openSampling(t *testing.T, library string) (*sampling.Driver, []metrics.Identity) {
	t.Helper()
	d := sampling.New(sampling.Options{Find: func() (string, error) { return library, nil }})
	require.NoError(t, d.Open(t.Context()))
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	gpus, faults, err := d.GPUs(t.Context())
	require.NoError(t, err)
	assert.Empty(t, faults)
	require.NotEmpty(t, gpus)
	return d, gpus
}

// TestSampling_RealGPUs_AsNvidiaSMI: the adapter's values are nvidia-smi's in base units. The test prints which ids of GPM each GPU
// supports and how long calls take, and writes both as fixtures below $OUT.
func TestSampling_RealGPUs_AsNvidiaSMI(t *testing.T) {
	library, smi := driverFiles(t)
	d, gpus := openSampling(t, library)
	for i := range gpus {
		g := &gpus[i]
		found := sampled{
			Product: g.Name, Architecture: g.Architecture, Driver: g.DriverVersion, CUDA: g.CUDAVersion, MIGMode: g.MIGMode, GPM: g.GPM,
			Values: map[string]float64{}, Calls: map[string]cost{},
		}
		before := valuesOf(t, d, g)
		found.SMI = querySMI(t, smi, g)
		after := valuesOf(t, d, g)
		for _, c := range comparedFields {
			c.compare(t, g, before, after, found.SMI[c.query])
		}
		for f := range metrics.FieldCount {
			if v, has := after.Get(f); has {
				found.Values[cmp.Or(metrics.Table[f].GPU, fmt.Sprintf("field %d", f))] = v
			}
		}
		found.GPMIDs = servedGPM(t, library, g)
		measure(t, d, g, found.Calls)
		show(t, fmt.Sprintf("GPU %d", g.Index), found)
		writeFixture(t, g.Index, found)
	}
}

// valuesOf returns a GPU's values, including the values of GPM.
func valuesOf(t *testing.T, d *sampling.Driver, g *metrics.Identity) *metrics.Values {
	t.Helper()
	all, values := allFields(), &metrics.Values{}
	_, _, err := d.MIGDevices(t.Context(), g.UUID)
	require.NoError(t, err)
	require.NoError(t, d.Values(t.Context(), g.UUID, all, values))
	for baseline := range 2 {
		require.NoError(t, d.Sample(t.Context(), g.UUID, wholeGPU, all, baseline == 0, values))
		if g.GPM && baseline == 0 {
			<-time.After(sampleGap) // of GPM, which compares two samples
		}
	}
	return values
}

func allFields() (all metrics.FieldSet) {
	for f := range metrics.FieldCount {
		all.Add(f)
	}
	return all
}

// querySMI asks nvidia-smi for the compared fields. It leaves out a field that its version does not know.
func querySMI(t *testing.T, smi string, g *metrics.Identity) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, c := range comparedFields {
		command := exec.CommandContext(t.Context(), smi, "-i", string(g.UUID), "--query-gpu="+c.query, "--format=csv,noheader,nounits")
		if library := os.Getenv(testedLibrary); library != "" {
			command.Env = []string{"LD_LIBRARY_PATH=" + filepath.Dir(library)}
		}
		out, err := command.CombinedOutput()
		if err != nil {
			t.Logf("nvidia-smi does not know %s: %s", c.query, out)
			continue
		}
		found[c.query] = strings.TrimSpace(string(out))
	}
	return found
}

// compare compares a value with the values that were read before and after it. If only nvidia-smi or only the adapter reports the value,
// that is logged, and is not a failure: they query unsupported values in different ways.
func (c *compared) compare(t *testing.T, g *metrics.Identity, before, after *metrics.Values, text string) {
	t.Helper()
	printed, err := strconv.ParseFloat(text, 64)
	first, had := before.Get(c.field)
	last, has := after.Get(c.field)
	if err != nil || !had || !has {
		if (err == nil) != (had && has) {
			t.Logf("GPU %d: %s is %q in nvidia-smi; value from the adapter: %t", g.Index, c.query, text, had && has)
		}
		return
	}
	low, high := min(first, last)/c.unit, max(first, last)/c.unit
	tolerance := max(c.tolerance, c.share*math.Abs(high), 0.01)
	t.Logf("GPU %d: %-40s nvidia-smi %s, adapter %g to %g", g.Index, c.query, text, low, high)
	assert.True(t, printed >= low-tolerance && printed <= high+tolerance, "GPU %d: %s is %s, and the adapter's value is %g to %g", g.Index, c.query, text, low, high)
}

// servedGPM returns the ids of GPM's metrics with a value.
func servedGPM(t *testing.T, library string, g *metrics.Identity) (ids []int) {
	t.Helper()
	if !g.GPM || g.MIGMode {
		return nil
	}
	lib := vendor.New(vendor.WithLibraryPath(library))
	require.Equal(t, vendor.SUCCESS, lib.Init())
	defer func() { assert.Equal(t, vendor.SUCCESS, lib.Shutdown()) }()
	device, ret := lib.DeviceGetHandleByUUID(string(g.UUID))
	require.Equal(t, vendor.SUCCESS, ret)
	var samples [2]vendor.GpmSample
	for i := range samples {
		sample, ret := lib.GpmSampleAlloc()
		require.Equal(t, vendor.SUCCESS, ret)
		defer func() { assert.Equal(t, vendor.SUCCESS, sample.Free()) }()
		if samples[i] = sample; i > 0 {
			<-time.After(sampleGap)
		}
		require.Equal(t, vendor.SUCCESS, sample.Get(device))
	}
	request := &vendor.GpmMetricsGetType{Sample1: samples[0], Sample2: samples[1]}
	for first := 1; first < int(vendor.GPM_METRIC_MAX); first += len(request.Metrics) {
		last := min(first+len(request.Metrics), int(vendor.GPM_METRIC_MAX))
		request.NumMetrics = uint32(last - first)
		for i := range last - first {
			request.Metrics[i] = vendor.GpmMetric{MetricId: uint32(first + i), NvmlReturn: uint32(vendor.ERROR_UNKNOWN)}
		}
		if ret := lib.GpmMetricsGet(request); ret != vendor.SUCCESS {
			t.Logf("GPM metrics %d to %d: %v", first, last-1, ret)
			continue
		}
		for _, m := range request.Metrics[:last-first] {
			if vendor.Return(m.NvmlReturn) == vendor.SUCCESS && !math.IsNaN(m.Value) {
				ids = append(ids, int(m.MetricId))
			}
		}
	}
	return ids
}

// measure prints the durations of a round's calls. Long durations are not a failure.
func measure(t *testing.T, d *sampling.Driver, g *metrics.Identity, costs map[string]cost) {
	t.Helper()
	const rounds = 20
	all := allFields()
	for name, call := range map[string]func() error{
		"MIGDevices": func() error { _, _, err := d.MIGDevices(t.Context(), g.UUID); return err },
		"Values":     func() error { return d.Values(t.Context(), g.UUID, all, &metrics.Values{}) },
		"Sample":     func() error { return d.Sample(t.Context(), g.UUID, wholeGPU, all, true, &metrics.Values{}) },
		"Processes":  func() error { _, err := d.Processes(t.Context(), g.UUID, time.Second); return err },
	} {
		var took []float64
		for range rounds {
			began := time.Now()
			require.NoError(t, call(), name)
			took = append(took, float64(time.Since(began).Nanoseconds())/1e3)
		}
		slices.Sort(took)
		costs[name] = cost{Median: took[rounds/2], Most: took[rounds-1]}
		t.Logf("GPU %d: %-10s takes %.0f us, %.0f us at most", g.Index, name, took[rounds/2], took[rounds-1])
	}
}

// writeFixture writes the results below $OUT, if that is set.
func writeFixture(t *testing.T, index int, found sampled) {
	t.Helper()
	out := os.Getenv("OUT")
	if out == "" {
		return
	}
	data, err := json.MarshalIndent(found, "", "  ")
	require.NoError(t, err)
	name := strings.ReplaceAll(strings.ToLower(found.Product), " ", "-")
	require.NoError(t, os.WriteFile(filepath.Join(out, fmt.Sprintf("sampling-%d-%s.json", index, name)), append(data, '\n'), 0o644))
}
