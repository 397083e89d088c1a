package metrics_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestNative_Names_PassPromlint(t *testing.T) {
	problems, err := promlint.New(bytes.NewReader(metrics.Join(node()).AppendNative(nil, false))).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestNative_Families_AreThoseOfThePage(t *testing.T) {
	families := native(t, metrics.Join(node()))
	documented := map[string]bool{}
	for _, f := range metrics.Families() {
		assert.False(t, documented[f.Name], "%s is there twice", f.Name)
		documented[f.Name] = true
		got, there := families[f.Name]
		if !there {
			assert.Equal(t, "prism_gpu_vgpu_licensed", f.Name, "no GPU of the node has the metric")
			continue
		}
		assert.Equal(t, f.Help, got.GetHelp())
		assert.Equal(t, strings.ToUpper(f.Kind.String()), got.GetType().String())
		for _, m := range got.GetMetric() {
			for _, l := range m.GetLabel() {
				assert.True(t, slices.Contains(f.Labels, l.GetName()) || strings.HasPrefix(l.GetName(), "claim_label_"), "%s{%s}", f.Name, l.GetName())
			}
		}
	}
	for name := range families {
		assert.True(t, documented[name], "%s is not documented", name)
	}
}

func TestNative_OpenMetrics_FamiliesUnitsAndEnd(t *testing.T) {
	page := string(metrics.Join(node()).AppendNative(nil, true))
	assert.True(t, strings.HasSuffix(page, "\n# EOF\n"))
	kinds, family := map[string]string{}, ""
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		words := strings.Split(line, " ")
		switch {
		case strings.HasPrefix(line, "# EOF"):
		case strings.HasPrefix(line, "# TYPE "):
			require.NotContains(t, kinds, words[2], "a family is in one place")
			kinds[words[2]], family = words[3], words[2]
		case strings.HasPrefix(line, "# UNIT "):
			assert.Equal(t, family, words[2])
			assert.True(t, strings.HasSuffix(family, "_"+words[3]), line)
		case !strings.HasPrefix(line, "# HELP "):
			name := strings.FieldsFunc(line, func(r rune) bool { return r == '{' || r == ' ' })[0]
			want := family
			if kinds[family] == "counter" {
				want += "_total"
			}
			assert.Equal(t, want, name)
		}
	}
	assert.Greater(t, len(kinds), 90)
}

func TestNative_Series_WithinBudgets(t *testing.T) {
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	g.XIDs = []metrics.XID{{Code: 31, GPUInstance: -1, Count: 1, Last: at}, {Code: 43, GPUInstance: 1, Count: 1, Last: at}}
	count := func(label string, list ...metrics.Allocation) int {
		return strings.Count(string(join(g, list...).AppendNative(nil, false)), label)
	}
	assert.LessOrEqual(t, count("gpu_uuid="), 71, "series of a GPU with every set and two kinds of XID errors")
	g.MIGDevices = []*metrics.MIGDevice{instance(1, 7, metrics.Hopper, gib)}
	assert.LessOrEqual(t, count("mig_uuid="), 30, "series of a MIG device")
	one := allocation("one", g.Identity.UUID, migID(1), "", container("one", "main"))
	assert.LessOrEqual(t, count(`pod="one"`, one), 6, "series of a container's device")
	for i := range 40 {
		p := process(uint32(i+1), "one/main", gib, 0.01)
		p.Command, p.MIG = fmt.Sprint("worker", i), migID(1)
		g.Processes = append(g.Processes, p)
	}
	one.Options.PerProcess = true
	assert.Equal(t, 4+2*9, count(`pod="one"`, one), "series of a container's device by command: 2 for each of 8 commands and other")
}

// TestNative_GPUsReleased_NoValues: whether a released GPU responds is unknown, which is not 0; its counters of errors stay.
func TestNative_GPUsReleased_NoValues(t *testing.T) {
	released := &metrics.GPU{Identity: metrics.Identity{UUID: gpuID(3)}, Released: true, XIDs: []metrics.XID{{Code: 79, Count: 1, GPUInstance: -1}}}
	j := metrics.Join(&metrics.Snapshot{GPUs: []*metrics.GPU{released}}, nil, metrics.Exporter{GPUsReleased: true})
	families := native(t, j)
	assert.InDelta(t, 1, value(t, families, "prism_exporter_gpus_released"), 0)
	assert.Empty(t, samples(families, "prism_gpu_up"))
	assert.Empty(t, samples(families, "prism_exporter_sample_timestamp_seconds"), "it is not stale")
	assert.InDelta(t, 1, value(t, families, "prism_gpu_xid_errors_total"), 0)
}

// TestNative_GPUsNotIdentified_Counted: a GPU of which nothing is known appears in no series, and one of which only the UUID and the place
// are known appears without a description.
func TestNative_GPUsNotIdentified_Counted(t *testing.T) {
	bare := &metrics.GPU{Identity: metrics.Identity{UUID: gpuID(3), Index: 3, PCIBusID: "0000:3b:00.0"}}
	j := metrics.Join(&metrics.Snapshot{GPUs: []*metrics.GPU{{Identity: metrics.Identity{Index: 1}}, bare}}, nil, metrics.Exporter{GPUsUnidentified: 2})
	families := native(t, j)
	assert.InDelta(t, 2, value(t, families, "prism_exporter_gpus_unidentified"), 0)
	require.Len(t, samples(families, "prism_gpu_up"), 1)
	assert.Zero(t, value(t, families, "prism_gpu_up", "gpu_uuid", string(gpuID(3))))
	assert.NotContains(t, families, "prism_gpu_info")
	assert.Empty(t, j.AppendDCGM(nil, nil))
}

func TestNative_ManyXIDs_Bounded(t *testing.T) {
	g := board(0, "Tesla T4", metrics.Turing)
	for i := range 100 {
		g.XIDs = append(g.XIDs, metrics.XID{Code: uint64(i), GPUInstance: -1, Count: 1, Last: at.Add(time.Duration(i) * time.Second)})
	}
	families := native(t, join(g))
	assert.Len(t, samples(families, "prism_gpu_xid_errors_by_code_total"), 16)
	assert.Len(t, samples(families, "prism_gpu_xid_last_timestamp_seconds", "xid", "99"), 1)
	assert.InDelta(t, 100, value(t, families, "prism_gpu_xid_errors_total"), 0)
}

func TestNative_FirstXID_GrowsFromZero(t *testing.T) {
	g := board(0, "Tesla T4", metrics.Turing)
	assert.Zero(t, value(t, native(t, join(g)), "prism_gpu_xid_errors_total"))
	g.XIDs = []metrics.XID{{Code: 31, GPUInstance: 3, Count: 1, Last: at}}
	families := native(t, join(g))
	assert.InDelta(t, 1, value(t, families, "prism_gpu_xid_errors_total"), 0)
	assert.InDelta(t, 1, value(t, families, "prism_gpu_xid_errors_by_code_total", "xid", "31", "gpu_instance", "3"), 0)
	assert.InDelta(t, at.Unix(), value(t, families, "prism_gpu_xid_last_timestamp_seconds", "xid", "31"), 0)
}

func TestNative_ValuesThatAreNone_NoSeries(t *testing.T) {
	for name, v := range map[string]float64{"NaN": math.NaN(), "infinite": math.Inf(1), "above 100 %": 1.5, "negative": -0.01} {
		t.Run(name, func(t *testing.T) {
			g := board(0, "Tesla T4", metrics.Turing)
			g.Values = metrics.Values{}
			g.Values.Set(metrics.FieldUtilization, v)
			j := join(g)
			assert.NotContains(t, native(t, j), "prism_gpu_utilization_ratio")
			assert.NotContains(t, parsed(t, j.AppendDCGM(nil, nil)), "DCGM_FI_DEV_GPU_UTIL")
		})
	}
}

func TestNative_NoContainerYet_PodLabelsAreWrittenEmpty(t *testing.T) {
	g, _ := timeSliced()
	page := string(join(g, allocation("early", g.Identity.UUID, "", "")).AppendNative(nil, false))
	assert.Contains(t, page, `prism_gpu_allocation_info{namespace="team",pod="",container="",`)
}

// TestPages_PodUID_OnlyIfWanted: with UIDs, successive pods of the same name get separate series.
func TestPages_PodUID_OnlyIfWanted(t *testing.T) {
	g, list := timeSliced()
	list = list[:1]
	snapshot := &metrics.Snapshot{GPUs: []*metrics.GPU{g}}
	for wanted, want := range map[bool]string{false: "", true: "one-uid"} {
		j := metrics.Join(snapshot, &metrics.Allocations{List: list}, metrics.Exporter{PodUID: wanted})
		info := samples(native(t, j), "prism_gpu_allocation_info", "pod", "one")
		require.Len(t, info, 1)
		assert.Equal(t, want, labelOf(info[0], "pod_uid"))
		dcgm := samples(parsed(t, j.AppendDCGM(nil, nil)), "DCGM_FI_DEV_GPU_UTIL", "pod", "one")
		require.Len(t, dcgm, 1)
		assert.Equal(t, want, labelOf(dcgm[0], "pod_uid"))
		assert.Equal(t, wanted, strings.Contains(string(j.AppendDCGM(nil, nil)), "pod_uid"))
		assert.Equal(t, wanted, strings.Contains(string(j.AppendNative(nil, false)), "pod_uid"))
	}
}

func TestNative_TenantsTexts_EscapedAndBounded(t *testing.T) {
	long := strings.Repeat("é", 4096)
	g, list := timeSliced(process(1, "one/main", gib, 0.5), process(2, "one/main", gib, 0.5))
	g.Processes[0].Command = "a\"b\\c\n\xff\xfe\x00"
	g.Processes[1].Command = long
	labels := map[string]string{"a": "x\"} 1\n# EOF\n", "b": long, "bad name\n": "1", "bad-name_": "2", "d": "\xff"}
	for _, more := range "efghijkl" {
		labels[string(more)] = "more"
	}
	list[0].Options = gpu.MetricsOptions{PerProcess: true, ExposeInContainer: true, Labels: labels}
	list[0].Claim = "claim\n\"" + long
	j := join(g, list...)
	for _, page := range [][]byte{j.AppendNative(nil, false), j.AppendNative(nil, true), j.Claim("one-uid"), j.AppendDCGM(nil, nil)} {
		require.True(t, utf8.Valid(page))
		parsed(t, page)
		for line := range strings.Lines(string(page)) {
			assert.Less(t, len(line), 4096)
		}
	}
	families := native(t, j)
	info := samples(families, "prism_gpu_allocation_info", "pod", "one")[0]
	ofClaim := 0
	for _, l := range info.GetLabel() {
		if strings.HasPrefix(l.GetName(), "claim_label_") {
			ofClaim++
		}
	}
	assert.Equal(t, 8, ofClaim)
	assert.Equal(t, "x\"} 1\n# EOF\n", labelOf(info, "claim_label_a"))
	assert.Equal(t, "1", labelOf(info, "claim_label_bad_name_"))
	commands := samples(families, "prism_container_gpu_process_memory_used_bytes")
	require.Len(t, commands, 2)
	assert.ElementsMatch(t, []string{"a\"b\\c\n\uFFFD\x00", strings.Repeat("é", 7)},
		[]string{labelOf(commands[0], "command"), labelOf(commands[1], "command")})
}
