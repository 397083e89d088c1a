package metrics_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

func TestParseCSV_CommentsBlanksAndSpaces_LikeDCGMExporter(t *testing.T) {
	chosen, problems, err := metrics.ParseCSV([]byte("# Format\n\n  # indented comment, with, commas\n" +
		"DCGM_FI_DEV_GPU_TEMP ,   gauge, Warm\r\nDCGM_FI_DEV_FB_USED,counter,\"Used, in MiB\"\nDCGM_FI_DRIVER_VERSION, label, Version\n"))
	require.NoError(t, err)
	assert.Empty(t, problems)
	assert.Equal(t, []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DRIVER_VERSION"}, chosen.Names())
	assert.Equal(t, []metrics.Field{metrics.FieldTemperatureGPU, metrics.FieldMemoryUsed}, chosen.Fields())
	families := parsed(t, metrics.Join(node()).AppendDCGM(nil, chosen))
	assert.Len(t, families, 2)
	assert.Equal(t, "COUNTER", families["DCGM_FI_DEV_FB_USED"].GetType().String(), "the CSV says the type")
	assert.Equal(t, "Used, in MiB", families["DCGM_FI_DEV_FB_USED"].GetHelp())
}

func TestParseCSV_UnknownAndUnsupported_LeftOutAndNamed(t *testing.T) {
	chosen, problems, err := metrics.ParseCSV([]byte(`DCGM_FI_DEV_GPU_TEMP, gauge, Warm
DCGM_FI_DEV_NONSENSE, gauge, No such field
# a comment
DCGM_EXP_P2P_STATUS, gauge, Links
DCGM_FI_DEV_FB_USED, histogram, Used
DCGM_FI_DEV_SERIAL, gauge, Serial
DCGM_FI_DEV_GPU_TEMP, gauge, Again
`))
	require.NoError(t, err)
	assert.Equal(t, []string{"DCGM_FI_DEV_GPU_TEMP"}, chosen.Names())
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	assert.Equal(t, []string{
		"line 2: DCGM_FI_DEV_NONSENSE: unknown field; the fields of this version are in docs/reference/metrics.md",
		"line 4: DCGM_EXP_P2P_STATUS: not supported: NVML reports it per pair of GPUs, one call each, and no round makes these calls: `nvidia-smi topo -p2p n` shows it",
		`line 5: DCGM_FI_DEV_FB_USED: unsupported type "histogram"; supported values: gauge, counter`,
		`line 6: DCGM_FI_DEV_SERIAL: type must be label, got "gauge"`,
		"line 7: DCGM_FI_DEV_GPU_TEMP: duplicate field",
	}, lines)
	families := native(t, metrics.Join(&metrics.Snapshot{}, &metrics.Allocations{}, metrics.Exporter{Problems: problems}))
	assert.Len(t, samples(families, "prism_exporter_csv_problem"), 5)
}

// TestParseCSV_FieldsOfDCGM_ReasonIsTrue: the reason distinguishes fields that only DCGM provides, fields that are not implemented, and
// unknown fields.
func TestParseCSV_FieldsOfDCGM_ReasonIsTrue(t *testing.T) {
	for field, want := range map[string]string{
		"DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS":              "only DCGM provides it: it reads NVSwitches",
		"DCGM_FI_DEV_CPU_UTIL_TOTAL":                     "only DCGM provides it: it reads CPUs",
		"DCGM_FI_DEV_CPU_AFFINITY_0":                     "not implemented yet: NVML provides it",
		"DCGM_FI_DEV_CONNECTX_HEALTH":                    "only DCGM provides it: it reads network cards",
		"DCGM_FI_IMEX_DOMAIN_STATUS":                     "only DCGM provides it: it queries the IMEX service",
		"DCGM_FI_DEV_DIAG_MEMORY_RESULT":                 "only DCGM provides it: it is a result of DCGM's diagnostics",
		"DCGM_FI_DEV_GPU_NVLINK_ERRORS":                  "only DCGM provides it: it is a state of DCGM",
		"DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE":           "not implemented yet: GPM provides it",
		"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L3":       "not implemented yet: NVML provides it for some generations",
		"DCGM_FI_DEV_ECC_DBE_VOL_L2":                     "not implemented yet: NVML provides it by location",
		"DCGM_FI_DEV_C2C_LINK_ERROR_INTR":                "not implemented yet: NVML provides it for each link",
		"DCGM_FI_DEV_PERSISTENCE_MODE":                   "not implemented yet: NVML provides it",
		"DCGM_FI_DEV_PWR_SMOOTHING_ENABLED":              "not implemented yet: NVML provides it",
		"DCGM_EXP_GPU_HEALTH_STATUS":                     "not supported: it is the result of DCGM's health checks",
		"DCGM_FI_DEV_GPU_TMEP":                           "unknown field",
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_L18":               "unknown field",
		"DCGM_FI_DEV_NVLINK_COUNT_FEC_HISTORY_16":        "unknown field",
		"DCGM_FI_PROF_SM_ACTIV":                          "unknown field",
		strings.Repeat("DCGM_FI_DEV_NVSWITCH_X", 40_000): "only DCGM provides it",
	} {
		_, problems, err := metrics.ParseCSV([]byte(utilizationLine + field + ", gauge, x\n"))
		require.NoError(t, err, field)
		require.Len(t, problems, 1, field)
		assert.Contains(t, problems[0].Reason, want, field)
	}
	for _, f := range metrics.DCGMFields() {
		_, problems, err := metrics.ParseCSV([]byte(f.Name + ", " + f.Kind.String() + ", x\n"))
		require.NoError(t, err)
		assert.Empty(t, problems, "%s is there, and has no reason", f.Name)
	}
}

const utilizationLine = "DCGM_FI_DEV_GPU_UTIL, gauge, Utilization\n"

// TestParseCSV_NVLinkFields_CountersOfRatesSampled: a rate that is calculated from a counter requires samples of the counter.
func TestParseCSV_NVLinkFields_CountersOfRatesSampled(t *testing.T) {
	chosen, problems, err := metrics.ParseCSV([]byte("DCGM_FI_DEV_NVLINK_BANDWIDTH_L17, counter, x\nDCGM_FI_DEV_NVLINK_TX_BANDWIDTH_L0, counter, x\n"))
	require.NoError(t, err)
	require.Empty(t, problems)
	assert.Equal(t, []metrics.Field{
		metrics.FieldNVLink0TransmitRate.OfNVLink(17), metrics.FieldNVLink0Transmitted.OfNVLink(17),
		metrics.FieldNVLink0ReceiveRate.OfNVLink(17), metrics.FieldNVLink0Received.OfNVLink(17),
		metrics.FieldNVLink0TransmitRate, metrics.FieldNVLink0Transmitted,
	}, chosen.Fields())
}

func TestParseCSV_NoCSV_Refused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":        {"", "must contain a line with a supported field"},
		"comments":     {"# DCGM_FI_DEV_GPU_TEMP, gauge, Warm\n", "must contain a line with a supported field"},
		"two columns":  {"DCGM_FI_DEV_GPU_TEMP, gauge\n", "line 1: must have 3 columns: field, type and help, got 2"},
		"four columns": {"# x\nDCGM_FI_DEV_GPU_TEMP, gauge, warm, hot\n", "line 2: must have 3 columns: field, type and help, got 4"},
		"quotes": {"DCGM_FI_DEV_GPU_TEMP, gauge, \"warm\n",
			`must be lines of field, type and help: parse error on line 1, column 36: extraneous or missing " in quoted-field`},
		"YAML":  {"metrics:\n- name: DCGM_FI_DEV_GPU_TEMP\n", "line 1: must have 3 columns: field, type and help, got 1"},
		"large": {strings.Repeat("#\n", 1<<20), "must be at most 1048576 bytes, got 2097152"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := metrics.ParseCSV([]byte(c.text))
			require.EqualError(t, err, c.want)
		})
	}
}

func FuzzParseCSV(f *testing.F) {
	f.Add([]byte("# Format\nDCGM_FI_DEV_GPU_TEMP, gauge, Warm\n" +
		"DCGM_FI_DEV_FB_USED , counter, \"Used, in MiB\"\nDCGM_FI_DRIVER_VERSION, label, Version\n"))
	f.Add([]byte("DCGM_FI_DEV_GPU_TEMP,gauge,\"a\\\n\xff\"\nDCGM_FI_DEV_NONSENSE\xff,gauge,x\n"))
	f.Add([]byte("\"\n,,\n"))
	j := metrics.Join(node())
	f.Fuzz(func(t *testing.T, text []byte) {
		chosen, problems, err := metrics.ParseCSV(text)
		for _, p := range problems {
			if p.Line < 1 || p.Reason == "" || !utf8.ValidString(p.String()) {
				t.Fatalf("problem %+v", p)
			}
		}
		if err != nil {
			if chosen != nil {
				t.Fatal("a selection and an error")
			}
			return
		}
		page := j.AppendDCGM(nil, chosen)
		if !utf8.Valid(page) {
			t.Fatalf("no UTF-8: %q", page)
		}
		parsed(t, page)
	})
}

// TestParseCSV_EveryLabel_ItsOwnValue: no two labels show the same value.
func TestParseCSV_EveryLabel_ItsOwnValue(t *testing.T) {
	g := board(0, "Tesla T4", metrics.Turing)
	g.Identity.Brand, g.Identity.NVMLVersion = "Tesla", "13.580.95.05"
	g.Identity.InfoROMOEM, g.Identity.InfoROMECC, g.Identity.InfoROMPower = "1.1", "6.16", "2.0"
	lines := "DCGM_FI_DEV_GPU_TEMP, gauge, Warm\n"
	for _, name := range metrics.DCGMLabels() {
		lines += name + ", label, Text\n"
	}
	chosen, problems, err := metrics.ParseCSV([]byte(lines))
	require.NoError(t, err)
	require.Empty(t, problems)
	m := samples(parsed(t, join(g).AppendDCGM(nil, chosen)), "DCGM_FI_DEV_GPU_TEMP")[0]
	seen := map[string]string{}
	for _, name := range metrics.DCGMLabels() {
		of := labelOf(m, name)
		assert.NotEmpty(t, of, name)
		assert.Empty(t, seen[of], "%s and %s are both %s", name, seen[of], of)
		seen[of] = name
	}
	assert.Len(t, seen, 12)
}
