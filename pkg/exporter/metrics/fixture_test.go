package metrics_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const gib = 1 << 30

var at = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// values are distinct values of every field of an architecture at a level; memory is 80 GiB, 8 of it in use.
func values(a metrics.Architecture, mig bool) metrics.Values {
	var v metrics.Values
	for f := range metrics.FieldCount {
		row := metrics.Table[f]
		absent := mig && (row.SourceOnMIG == "" || row.SourceOnMIG == metrics.SourceGPM && a < metrics.Hopper)
		if absent || !row.On(a) || row.Where == "a vGPU" {
			continue
		}
		switch row.Unit {
		case "ratio":
			v.Set(f, float64(f)/100)
		case "hertz":
			v.Set(f, float64(f)*1e6+1410e6)
		case "seconds":
			v.Set(f, float64(f)/1000)
		case "bytes", "bytes_per_second":
			v.Set(f, float64(f)*1e6)
		default:
			v.Set(f, float64(f))
		}
	}
	memory(&v, 80*gib, 8*gib)
	return v
}

func memory(v *metrics.Values, total, used float64) {
	v.Set(metrics.FieldMemoryTotal, total)
	v.Set(metrics.FieldMemoryUsed, used)
	v.Set(metrics.FieldMemoryReserved, gib)
	v.Set(metrics.FieldMemoryFree, total-used-gib)
}

// board is a GPU that responds.
func board(index int, name string, a metrics.Architecture) *metrics.GPU {
	return &metrics.GPU{
		Identity: metrics.Identity{
			UUID: gpuID(index), Index: index, Device: fmt.Sprintf("nvidia%d", index), PCIBusID: fmt.Sprintf("0000:%02x:00.0", 0x3b+index), Name: name, Brand: "NVIDIA",
			Architecture: a.String(), Serial: fmt.Sprintf("132052%d", index), VBIOS: "96.00.74", InfoROM: "G520.0200", DriverVersion: "580.95.05",
			CUDAVersion: "13.0", GPM: a >= metrics.Hopper,
		},
		At: at, Interval: 10 * time.Second, Up: true, Values: values(a, false),
	}
}

func gpuID(index int) gpu.UUID { return gpu.UUID(fmt.Sprintf("GPU-%08d-0000", index)) }

func migID(index int) gpu.UUID { return gpu.UUID(fmt.Sprintf("MIG-%08d-0000", index)) }

// instance is a MIG device with an instance of its own.
func instance(id, gpuInstance int, a metrics.Architecture, used float64) *metrics.MIGDevice {
	m := &metrics.MIGDevice{UUID: migID(id), Profile: "1g.10gb", GPUInstance: gpuInstance, Values: values(a, true)}
	memory(&m.Values, 10*gib, used)
	return m
}

func container(pod, name string) metrics.Container {
	return metrics.Container{Namespace: "team", Pod: pod, PodUID: pod + "-uid", Name: name, ID: pod + "/" + name}
}

// process is a process of a container, of the host for "".
func process(pid uint32, of string, used, sm float64) metrics.Process {
	return metrics.Process{
		PID: pid, ProcessIdentity: metrics.ProcessIdentity{Start: 1, Command: "python3", ContainerID: of}, MemoryBytes: used, SM: sm,
		Memory: math.NaN(), Encoder: math.NaN(), Decoder: math.NaN(),
	}
}

func allocation(claim string, g gpu.UUID, mig gpu.UUID, share string, containers ...metrics.Container) metrics.Allocation {
	kind := gpu.TypeGPU
	switch {
	case share != "":
		kind = gpu.TypeTimeSlice
	case mig != "":
		kind = gpu.TypeMIG
	}
	return metrics.Allocation{
		Namespace: "team", Claim: claim, ClaimUID: claim + "-uid", Request: "gpu", Pool: "node-1", Device: string(kind) + "-0", ShareID: share,
		Type: kind, GPU: g, MIG: mig, Containers: containers,
	}
}

// node has a whole H100, one in MIG mode, a time-sliced T4 and a GPU that does not respond.
func node() (*metrics.Snapshot, *metrics.Allocations, metrics.Exporter) {
	whole, parted := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper), board(1, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	shared := board(2, "Tesla T4", metrics.Turing)
	lost := board(3, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	lost.Up, lost.Values = false, lost.Values.Only(metrics.Events)
	lost.XIDs = []metrics.XID{{Code: 79, GPUInstance: -1, Count: 1, Last: at}}
	whole.Processes = []metrics.Process{process(100, "train/main", 6*gib, 0.9)}
	whole.XIDs = []metrics.XID{{Code: 31, GPUInstance: -1, Count: 2, Last: at.Add(-time.Hour)}}
	parted.Identity.MIGMode = true
	parted.MIGDevices = []*metrics.MIGDevice{
		instance(1, 7, metrics.Hopper, 2*gib), instance(2, 8, metrics.Hopper, 4*gib),
	}
	one, two := process(200, "pair/a", gib, math.NaN()), process(201, "pair/b", 2*gib, math.NaN())
	one.MIG, two.MIG = migID(2), migID(2)
	parted.Processes = []metrics.Process{one, two}
	parted.XIDs = []metrics.XID{{Code: 43, GPUInstance: 8, Count: 1, Last: at}}
	whole.ProcessesSampled, shared.ProcessesSampled = true, true
	memory(&shared.Values, 16*gib, 9*gib)
	server := process(302, "", 256<<20, 0)
	server.ServesClients = true
	shared.Processes = []metrics.Process{
		process(300, "web-1/main", gib, 0.25), process(301, "web-2/main", 2*gib, 0.5), server, process(303, "", gib, 0.125),
	}
	first := allocation("web-1", gpuID(2), "", "s1", container("web-1", "main"))
	first.Options = gpu.MetricsOptions{PerProcess: true, ExposeInContainer: true, Labels: map[string]string{
		"team": "vision", "cost-center": `4"7`,
	}}
	second := allocation("web-2", gpuID(2), "", "s2", container("web-2", "main"))
	second.ThroughServer = true
	list := []metrics.Allocation{
		allocation("train", gpuID(0), "", "", container("train", "main")),
		allocation("slice", gpuID(1), migID(1), "", container("slice", "main")),
		allocation("pair", gpuID(1), migID(2), "", container("pair", "a"), container("pair", "b")),
		first,
		second,
		allocation("early", gpuID(3), "", ""),
	}
	return &metrics.Snapshot{Generation: 1, GPUs: []*metrics.GPU{whole, parted, shared, lost}}, &metrics.Allocations{List: list},
		metrics.Exporter{
			Version: "1.2.3", Node: "node-1", SessionsReopened: 1, SamplesDropped: 2, NVMLErrors: map[gpu.UUID]uint64{gpuID(3): 4},
			Sources:  []metrics.SourceState{{Name: "cri", Errors: 3}, {Name: "records", OK: true, At: at}},
			Problems: []metrics.Problem{{Line: 3, Field: "DCGM_EXP_P2P_STATUS", Reason: "not supported"}},
		}
}

// native parses the page with Prism's own names.
func native(t *testing.T, j *metrics.Joined) map[string]*dto.MetricFamily {
	t.Helper()
	return parsed(t, j.AppendNative(nil, false))
}

func parsed(t *testing.T, page []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(page)))
	require.NoError(t, err, string(page))
	seen := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		series := line[:strings.LastIndex(line, " ")]
		require.False(t, seen[series], "two series %s", series)
		seen[series] = true
	}
	return families
}

// value is the only sample of a family with these labels, a list of alternating names and values; NaN if there is none.
func value(t *testing.T, families map[string]*dto.MetricFamily, name string, pairs ...string) float64 {
	t.Helper()
	found := samples(families, name, pairs...)
	require.LessOrEqual(t, len(found), 1, "%s%v", name, pairs)
	if len(found) == 0 {
		return math.NaN()
	}
	if c := found[0].GetCounter(); c != nil {
		return c.GetValue()
	}
	return found[0].GetGauge().GetValue()
}

func samples(families map[string]*dto.MetricFamily, name string, pairs ...string) []*dto.Metric {
	var found []*dto.Metric
	for _, m := range families[name].GetMetric() {
		if has(m, pairs) {
			found = append(found, m)
		}
	}
	return found
}

func has(m *dto.Metric, pairs []string) bool {
	for i := 0; i < len(pairs); i += 2 {
		if labelOf(m, pairs[i]) != pairs[i+1] {
			return false
		}
	}
	return true
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
