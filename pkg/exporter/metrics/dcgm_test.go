package metrics_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestDCGM_Units_AreDCGMs(t *testing.T) {
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	for f, v := range map[metrics.Field]float64{
		metrics.FieldClockSM: 1980e6, metrics.FieldClockMemory: 2619e6, metrics.FieldPowerUsage: 345.678, metrics.FieldEnergy: 12.345,
		metrics.FieldUtilization: 0.29, metrics.FieldUtilizationMemory: 0.57, metrics.FieldViolationPower: 1.5,
		metrics.FieldTensorActive:     0.123456,
		metrics.FieldPCIeTransmitRate: 3 << 20, metrics.FieldNVLinkTransmitRate: 4e9, metrics.FieldNVLinkReceiveRate: 5e9,
	} {
		g.Values.Set(f, v)
	}
	memory(&g.Values, 80*gib, 8*gib)
	families := parsed(t, join(g).AppendDCGM(nil, nil))
	for name, want := range map[string]float64{
		"DCGM_FI_DEV_SM_CLOCK": 1980, "DCGM_FI_DEV_MEM_CLOCK": 2619, "DCGM_FI_DEV_POWER_USAGE": 345.678,
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 12345, "DCGM_FI_DEV_GPU_UTIL": 29, "DCGM_FI_DEV_MEM_COPY_UTIL": 57,
		"DCGM_FI_DEV_POWER_VIOLATION": 1.5e9, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.123456, "DCGM_FI_PROF_PCIE_TX_BYTES": 3 << 20,
		"DCGM_FI_DEV_FB_USED": 8 << 10, "DCGM_FI_DEV_FB_RESERVED": 1 << 10, "DCGM_FI_DEV_FB_FREE": 71 << 10,
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 9000, "DCGM_FI_DEV_XID_ERRORS": 0,
	} {
		assert.InDelta(t, want, value(t, families, name), 0, name)
	}
	assert.Equal(t, "COUNTER", families["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"].GetType().String())
}

func TestDCGM_DefaultPage_HasEveryFieldOnceALevel(t *testing.T) {
	families := parsed(t, metrics.Join(node()).AppendDCGM(nil, nil))
	for _, f := range metrics.DCGMFields() {
		if !f.Default || slices.Contains(f.Fields, metrics.FieldVGPULicense) || strings.HasPrefix(f.Name, "DCGM_EXP_") {
			assert.NotContains(t, families, f.Name)
			continue
		}
		require.Contains(t, families, f.Name)
		assert.Equal(t, strings.ToUpper(f.Kind.String()), families[f.Name].GetType().String())
		for _, m := range families[f.Name].GetMetric() {
			instance := labelOf(m, "GPU_I_ID") != ""
			assert.Equal(t, instance, labelOf(m, "GPU_I_PROFILE") != "", f.Name)
			if labelOf(m, "gpu") == "1" {
				assert.Equal(t, f.Instance, instance, "%s of a GPU in MIG mode is at one level", f.Name)
			} else {
				assert.False(t, instance, f.Name)
			}
		}
	}
	assert.Equal(t, "8", labelOf(samples(families, "DCGM_FI_DEV_GPU_UTIL", "pod", "pair")[0], "GPU_I_ID"))
}

func TestDCGM_MIGModeWithoutDevices_NoInstanceFields(t *testing.T) {
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	g.Identity.MIGMode = true
	families := parsed(t, join(g).AppendDCGM(nil, nil))
	assert.NotContains(t, families, "DCGM_FI_DEV_FB_USED")
	assert.NotContains(t, families, "DCGM_FI_PROF_SM_ACTIVE")
	assert.Contains(t, families, "DCGM_FI_DEV_GPU_TEMP")
}

func TestDCGM_MIGOnAmpere_NoUtilization(t *testing.T) {
	g := board(0, "NVIDIA A100-SXM4-40GB", metrics.Ampere)
	g.Identity.MIGMode = true
	g.MIGDevices = []*metrics.MIGDevice{instance(1, 7, metrics.Ampere, gib)}
	families := parsed(t, join(g).AppendDCGM(nil, nil))
	assert.Contains(t, families, "DCGM_FI_DEV_FB_USED")
	assert.NotContains(t, families, "DCGM_FI_DEV_GPU_UTIL")
	for name := range families {
		assert.False(t, strings.HasPrefix(name, "DCGM_FI_PROF_"), name)
	}
}

func TestDCGM_PodLabels_OfThePodThatHasTheDevice(t *testing.T) {
	exclusive, shared := "", "s1"
	for name, c := range map[string]struct {
		list                      []metrics.Allocation
		namespace, pod, container string
	}{
		"nothing":       {},
		"one container": {[]metrics.Allocation{allocation("a", gpuID(0), "", exclusive, container("a", "main"))}, "team", "a", "main"},
		"two of one pod": {
			[]metrics.Allocation{allocation("a", gpuID(0), "", exclusive, container("a", "main"), container("a", "side"))}, "team", "a", "",
		},
		"two pods":  {list: []metrics.Allocation{allocation("a", gpuID(0), "", exclusive, container("a", "main"), container("b", "main"))}},
		"one share": {[]metrics.Allocation{allocation("a", gpuID(0), "", shared, container("a", "main"))}, "team", "a", "main"},
		"share of a pod that is not known yet": {list: []metrics.Allocation{
			allocation("a", gpuID(0), "", shared, container("a", "main")), allocation("b", gpuID(0), "", "s2"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			page := join(board(0, "Tesla T4", metrics.Turing), c.list...).AppendDCGM(nil, nil)
			families := parsed(t, page)
			require.NotEmpty(t, families)
			for _, f := range families {
				m := f.GetMetric()[0]
				assert.Equal(t, []string{c.namespace, c.pod, c.container},
					[]string{labelOf(m, "namespace"), labelOf(m, "pod"), labelOf(m, "container")})
			}
			for line := range strings.Lines(string(page)) {
				if !strings.HasPrefix(line, "#") {
					assert.Contains(t, line, `namespace="`+c.namespace+`",pod="`+c.pod+`",container="`+c.container+`"}`, "empty labels are written")
				}
			}
		})
	}
}

func TestDCGM_LastXID_IsTheNewest(t *testing.T) {
	g := board(0, "Tesla T4", metrics.Turing)
	g.XIDs = []metrics.XID{{Code: 31, GPUInstance: -1, Count: 5, Last: at}, {Code: 43, GPUInstance: -1, Count: 1, Last: at.Add(1)}}
	assert.InDelta(t, 43, value(t, parsed(t, join(g).AppendDCGM(nil, nil)), "DCGM_FI_DEV_XID_ERRORS"), 0)
}

func TestDCGM_Labels_AreDCGMExporters(t *testing.T) {
	families := parsed(t, metrics.Join(node()).AppendDCGM(nil, nil))
	m := samples(families, "DCGM_FI_DEV_FB_USED", "GPU_I_ID", "7")[0]
	var names []string
	for _, l := range m.GetLabel() {
		names = append(names, l.GetName())
	}
	assert.ElementsMatch(t, []string{
		"gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "Hostname", "hostname", "DCGM_FI_DRIVER_VERSION",
		"namespace", "pod", "container",
	}, names)
	assert.Equal(t, "00000000:3C:00.0", labelOf(m, "pci_bus_id"))
	assert.Equal(t, "nvidia1", labelOf(m, "device"))
}

func TestDCGM_Fields_AreInTheTable(t *testing.T) {
	names := map[string]bool{}
	for _, f := range metrics.DCGMFields() {
		assert.False(t, names[f.Name], "%s is there twice", f.Name)
		names[f.Name] = true
		for _, field := range f.Fields {
			row := metrics.Table[field]
			if f.Instance && field != metrics.FieldUtilizationMemory {
				assert.NotEmpty(t, row.SourceOnMIG, "%s: no MIG device has it", f.Name)
			}
			assert.True(t, len(row.Sets) > 0 || row.GPU == "" && !f.Default, "%s: no set has it", f.Name)
		}
	}
	for name, why := range metrics.DCGMUnsupported() {
		assert.False(t, names[name], "%s is supported", name)
		assert.NotEmpty(t, why)
	}
}

func TestTable_Rows_Complete(t *testing.T) {
	known := map[string]bool{}
	for _, f := range metrics.SetFields(gpu.MetricsBasic) {
		known[metrics.Table[f].GPU] = true
	}
	assert.True(t, known["prism_gpu_utilization_ratio"])
	assert.Empty(t, metrics.SetFields(gpu.MetricsProcesses))
	assert.Empty(t, metrics.SetFields("Unknown"))
	for f := range metrics.FieldCount {
		row := metrics.Table[f]
		assert.NotEmpty(t, row.Help, f)
		assert.NotEmpty(t, row.Source, row.GPU)
		assert.True(t, len(row.Sets) > 0 || row.GPU == "" && row.MIG == "", "%s: only counters of DCGM's fields choose what has no name", row.Help)
		for _, set := range row.Sets {
			assert.Contains(t, gpu.MetricsSets, set)
			assert.Contains(t, metrics.SetFields(set), f)
		}
		for _, name := range []string{row.GPU, row.MIG} {
			if name != "" {
				assert.True(t, strings.HasSuffix(strings.TrimSuffix(name, "_total"), row.Unit), name)
				assert.Equal(t, row.Kind == metrics.Counter, strings.HasSuffix(name, "_total"), name)
			}
		}
		assert.False(t, row.MIG != "" && row.SourceOnMIG == "", row.MIG)
	}
}

// TestSetBasic_DCGMExportersDefaults_Sampled: the active lines of dcgm-exporter's default counters show values without any configuration.
func TestSetBasic_DCGMExportersDefaults_Sampled(t *testing.T) {
	uncommented := strings.Fields("SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION PCIE_REPLAY_COUNTER GPU_UTIL " +
		"MEM_COPY_UTIL ENC_UTIL DEC_UTIL XID_ERRORS FB_FREE FB_USED FB_RESERVED NVLINK_BANDWIDTH_TOTAL VGPU_LICENSE_STATUS " +
		"UNCORRECTABLE_REMAPPED_ROWS CORRECTABLE_REMAPPED_ROWS ROW_REMAP_FAILURE PROF_GR_ENGINE_ACTIVE PROF_PIPE_TENSOR_ACTIVE " +
		"PROF_DRAM_ACTIVE PROF_PCIE_TX_BYTES PROF_PCIE_RX_BYTES")
	shown := map[string]metrics.DCGMField{}
	for _, f := range metrics.DCGMFields() {
		if f.Default {
			shown[strings.TrimPrefix(strings.TrimPrefix(f.Name, "DCGM_FI_"), "DEV_")] = f
		}
	}
	for _, name := range uncommented {
		require.Contains(t, shown, name)
		assert.Subset(t, metrics.SetFields(gpu.MetricsBasic), shown[name].Fields, name)
	}
}

// TestDCGM_DefaultCounters_NamesAndTypes: each line of dcgm-exporter's default counters, also if commented out, appears with its name and
// type if NVML or GPM provides a value.
func TestDCGM_DefaultCounters_NamesAndTypes(t *testing.T) {
	found := map[string]metrics.Kind{}
	for _, f := range metrics.DCGMFields() {
		found[f.Name] = f.Kind
	}
	for kind, names := range map[metrics.Kind]string{
		metrics.Gauge: "DEV_SM_CLOCK DEV_MEM_CLOCK DEV_MEMORY_TEMP DEV_GPU_TEMP DEV_POWER_USAGE DEV_GPU_UTIL DEV_MEM_COPY_UTIL DEV_ENC_UTIL " +
			"DEV_DEC_UTIL DEV_XID_ERRORS DEV_FB_FREE DEV_FB_USED DEV_FB_RESERVED DEV_VGPU_LICENSE_STATUS DEV_ROW_REMAP_FAILURE " +
			"PROF_GR_ENGINE_ACTIVE PROF_SM_ACTIVE PROF_SM_OCCUPANCY PROF_PIPE_TENSOR_ACTIVE PROF_DRAM_ACTIVE PROF_PIPE_FP64_ACTIVE " +
			"PROF_PIPE_FP32_ACTIVE PROF_PIPE_FP16_ACTIVE PROF_PCIE_TX_BYTES PROF_PCIE_RX_BYTES",
		metrics.Counter: "DEV_TOTAL_ENERGY_CONSUMPTION DEV_PCIE_TX_THROUGHPUT DEV_PCIE_RX_THROUGHPUT DEV_PCIE_REPLAY_COUNTER " +
			"DEV_POWER_VIOLATION DEV_THERMAL_VIOLATION DEV_SYNC_BOOST_VIOLATION DEV_BOARD_LIMIT_VIOLATION DEV_LOW_UTIL_VIOLATION " +
			"DEV_RELIABILITY_VIOLATION DEV_ECC_SBE_VOL_TOTAL DEV_ECC_DBE_VOL_TOTAL DEV_ECC_SBE_AGG_TOTAL DEV_ECC_DBE_AGG_TOTAL " +
			"DEV_RETIRED_SBE DEV_RETIRED_DBE DEV_RETIRED_PENDING DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL " +
			"DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL " +
			"DEV_NVLINK_BANDWIDTH_TOTAL DEV_NVLINK_BANDWIDTH_L0 DEV_UNCORRECTABLE_REMAPPED_ROWS DEV_CORRECTABLE_REMAPPED_ROWS",
	} {
		for name := range strings.FieldsSeq(names) {
			require.Contains(t, found, "DCGM_FI_"+name)
			assert.Equal(t, kind, found["DCGM_FI_"+name], name)
		}
	}
}
