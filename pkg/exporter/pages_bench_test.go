package exporter

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// slicedNode has eight GPUs with seven MIG devices each; two containers with one process each use every MIG device.
func slicedNode() (*metrics.Snapshot, *metrics.Allocations) {
	snapshot, allocations := &metrics.Snapshot{Generation: 1}, &metrics.Allocations{Generation: 1}
	for i := range 8 {
		g := &metrics.GPU{
			Identity: metrics.Identity{UUID: gpu.UUID(fmt.Sprintf("GPU-%032d", i)), Index: i, Device: fmt.Sprintf("nvidia%d", i), Name: "NVIDIA H100 80GB HBM3", MIGMode: true, GPM: true},
			At:       time.Unix(1, 0), Interval: time.Second, Up: true,
		}
		every(&g.Values)
		for k := range 7 {
			m := &metrics.MIGDevice{UUID: gpu.UUID(fmt.Sprintf("MIG-%032d", 10*i+k)), Profile: "1g.10gb", GPUInstance: 7 + k}
			every(&m.Values)
			g.MIGDevices = append(g.MIGDevices, m)
			a := metrics.Allocation{
				Namespace: "team", Claim: "claim", ClaimUID: fmt.Sprintf("uid-%d-%d", i, k), Request: "gpu", Pool: "node-a",
				Device: fmt.Sprintf("mig-%d-%d", i, k), Type: gpu.TypeMIG, GPU: g.Identity.UUID, MIG: m.UUID,
			}
			for n := range 2 {
				c := metrics.Container{Namespace: "team", Pod: fmt.Sprintf("pod-%d-%d", i, k), Name: fmt.Sprint(n), ID: fmt.Sprint(i, k, n)}
				a.Containers = append(a.Containers, c)
				g.Processes = append(g.Processes, metrics.Process{
					PID: uint32(100*i + 10*k + n), ProcessIdentity: metrics.ProcessIdentity{Start: 1, ContainerID: c.ID}, MIG: m.UUID,
					MemoryBytes: 1 << 30, SM: math.NaN(), Memory: math.NaN(), Encoder: math.NaN(), Decoder: math.NaN(),
				})
			}
			allocations.List = append(allocations.List, a)
		}
		snapshot.GPUs = append(snapshot.GPUs, g)
	}
	return snapshot, allocations
}

// every sets each field.
func every(v *metrics.Values) {
	for f := range metrics.FieldCount {
		v.Set(f, float64(f)/100)
	}
}

// BenchmarkPage_Rendered measures the first scrape after a round of one of eight GPUs: it joins values and names, and writes and compresses
// the page.
func BenchmarkPage_Rendered(b *testing.B) {
	for name, page := range map[string]format{"native": nativeText, "dcgm": dcgmText} {
		b.Run(name, func(b *testing.B) {
			snapshot, allocations := slicedNode()
			var now view
			p := &pages{view: func() view { return now }}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				next := *snapshot.GPUs[n%8]
				next.Values.Set(metrics.FieldPowerUsage, float64(n))
				snapshot.GPUs[n%8] = &next
				now = &round{join: func() *metrics.Joined { return metrics.Join(snapshot, allocations, metrics.Exporter{Node: "node-a"}) }}
				p.get(page, true)
			}
			b.ReportMetric(float64(len(p.text)), "bytes/page")
		})
	}
}
