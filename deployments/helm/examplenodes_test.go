package helm

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// board is a kind of GPU. On its example node one is whole, one is shared, and one is partitioned if it supports MIG.
type board struct {
	node, name string
	of         metrics.Architecture
	// has are the capabilities that metrics depend on, as in metrics.Row.Where.
	has []string
	mig string
}

// boards are the boards in docs/monitoring.md.
var boards = []board{
	{"hopper", "NVIDIA H100 80GB HBM3", metrics.Hopper, []string{"NVLink", "HBM", "ECC"}, "1g.10gb"},
	{"a100", "NVIDIA A100-SXM4-80GB", metrics.Ampere, []string{"NVLink", "HBM", "ECC"}, "1g.10gb"},
	{"t4", "Tesla T4", metrics.Turing, []string{"ECC"}, ""},
}

const gib = 1 << 30

// values are the exporter's default values for a GPU or a MIG device.
func (b *board) values(now time.Time, mig, partitioned bool) metrics.Values {
	var v metrics.Values
	for f := range metrics.FieldCount {
		row := &metrics.Table[f]
		if !slices.Contains(row.Sets, gpu.MetricsBasic) || !b.can(row, mig, partitioned) {
			continue
		}
		scale := map[string]float64{"ratio": 1, "hertz": 1.98e9, "watts": 700, "celsius": 80, "bytes_per_second": 2e10}[row.Unit]
		switch {
		case row.Kind == metrics.Counter:
			v.Set(f, float64(now.Unix()%100_000))
		case f == metrics.FieldMemoryTotal:
			v.Set(f, 16*gib)
		case f == metrics.FieldMemoryUsed:
			v.Set(f, 8*gib)
		default:
			v.Set(f, scale/2)
		}
	}
	return v
}

// can reports whether such a GPU, or a MIG device of it, supports a field.
func (b *board) can(row *metrics.Row, mig, partitioned bool) bool {
	source := row.Source
	if mig {
		source = row.SourceOnMIG
	}
	switch {
	case source == "" || !row.On(b.of) || row.Where != "" && !slices.Contains(b.has, row.Where):
		return false
	case source == metrics.SourceGPM:
		return b.of >= metrics.Hopper
	}
	return !partitioned || !slices.Contains(row.Sets, gpu.MetricsUtilization) // in MIG mode NVML reports no utilization
}

// sample is the exporter's state for a node with such GPUs.
func (b *board) sample(now time.Time) *metrics.Joined {
	snapshot, allocations := &metrics.Snapshot{}, &metrics.Allocations{}
	for i := range 3 {
		if i == 2 && b.mig == "" {
			break
		}
		g := &metrics.GPU{
			Identity: metrics.Identity{
				UUID: gpu.UUID(fmt.Sprintf("GPU-%s-%d", b.node, i)), Index: i, Device: fmt.Sprintf("nvidia%d", i), Name: b.name, Brand: "NVIDIA", Architecture: b.of.String(),
				DriverVersion: "580.95.05", CUDAVersion: "13.0", MIGMode: i == 2, GPM: b.of >= metrics.Hopper,
			},
			At: now, Interval: time.Second, Up: true, Values: b.values(now, false, i == 2),
			XIDs: []metrics.XID{{Code: 31, GPUInstance: -1, Count: uint64(now.Unix() / 5), Last: now}},
		}
		snapshot.GPUs = append(snapshot.GPUs, g)
		if i == 2 {
			m := &metrics.MIGDevice{
				UUID: gpu.UUID("MIG-" + b.node), Profile: b.mig, GPUInstance: 7, Values: b.values(now, true, true),
			}
			g.MIGDevices = []*metrics.MIGDevice{m}
			allocations.List = append(allocations.List, b.allocation(g, gpu.TypeMIG, "partition", m.UUID, ""))
			continue
		}
		if i == 0 {
			allocations.List = append(allocations.List, b.allocation(g, gpu.TypeGPU, "whole", "", ""))
			continue
		}
		for n := range 2 {
			pod := fmt.Sprintf("share-%d", n)
			g.Processes = append(g.Processes, metrics.Process{
				PID: uint32(100 + n), ProcessIdentity: metrics.ProcessIdentity{Start: 1, Command: "python3", ContainerID: pod},
				MemoryBytes: gib, SM: 0.2 + 0.1*float64(n), Memory: math.NaN(), Encoder: math.NaN(), Decoder: math.NaN(),
			})
			allocations.List = append(allocations.List, b.allocation(g, gpu.TypeTimeSlice, pod, "", pod))
		}
	}
	return metrics.Join(snapshot, allocations, metrics.Exporter{Version: "example", Node: b.node})
}

func (b *board) allocation(g *metrics.GPU, kind gpu.DeviceType, pod string, mig gpu.UUID, share string) metrics.Allocation {
	return metrics.Allocation{
		Namespace: "team-" + b.node, Claim: pod, ClaimUID: b.node + pod, Request: "gpu", Pool: b.node,
		Device: fmt.Sprintf("gpu-%d", g.Identity.Index), ShareID: share, Type: kind, GPU: g.Identity.UUID, MIG: mig,
		Containers: []metrics.Container{{Namespace: "team-" + b.node, Pod: pod, PodUID: b.node + pod, Name: "main", ID: pod}},
	}
}

// input is a series with its values in the notation of promtool.
type input struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

// exposed is a line of a page: metric, labels, value.
var exposed = regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)})? (\S+)$`)

// scraped are the series in a Prometheus after two scrapes of both pages of the board, with the labels that the chart's monitors set.
func (b *board) scraped(t *testing.T) (inputs []input) {
	t.Helper()
	at := map[string]int{}
	for _, now := range []time.Time{time.Unix(100, 0), time.Unix(160, 0)} {
		joined := b.sample(now)
		var pages strings.Builder
		require.NoError(t, joined.Native(&pages, false))
		require.NoError(t, joined.DCGM(&pages, nil))
		for _, line := range exposed.FindAllStringSubmatch(pages.String(), -1) {
			labels := line[2]
			for _, name := range []string{"node", "instance"} {
				if !strings.Contains(","+labels, ","+name+`="`) { // the exporter's own labels are honored
					labels = strings.TrimPrefix(labels+fmt.Sprintf(",%s=%q", name, b.node), ",")
				}
			}
			series := line[1] + "{" + labels + "}"
			if i, known := at[series]; known {
				inputs[i].Values += " " + line[3]
				continue
			}
			at[series] = len(inputs)
			inputs = append(inputs, input{series, line[3]})
		}
	}
	return inputs
}
