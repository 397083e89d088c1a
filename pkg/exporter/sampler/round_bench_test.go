package sampler

import (
	"context"
	"fmt"
	"testing"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// slicedGPU is a GPU with seven MIG devices and two processes on each.
func slicedGPU() *fakeLibrary {
	f := newFake(1)
	g := f.gpus["GPU-0"]
	for i := range 7 {
		id := gpu.UUID(fmt.Sprintf("MIG-%d", i))
		g.devices = append(g.devices, metrics.MIGDevice{UUID: id, Profile: "1g.10gb", GPUInstance: 7 + i})
		for n := range 2 {
			g.processes = append(g.processes, metrics.Process{PID: uint32(100 + 2*i + n), MIG: id})
		}
	}
	f.open = true
	return f
}

// BenchmarkRound measures a round on a GPU with seven MIG devices of two containers each, without the time of the driver's calls.
func BenchmarkRound(b *testing.B) {
	f := slicedGPU()
	proc := &fakeProcesses{list: map[uint32]metrics.ProcessIdentity{}}
	var list []Want
	for i, d := range f.gpus["GPU-0"].devices {
		list = append(list, Want{MIG: d.UUID, Claim: fmt.Sprint(i)})
		for n := range 2 {
			pid := uint32(100 + 2*i + n)
			proc.list[pid] = metrics.ProcessIdentity{Start: 1, Command: "python3", ContainerID: fmt.Sprint(i, n)}
		}
	}
	s := New(Options{Library: f, Processes: proc, Wanted: func(gpu.UUID) []Want { return list }})
	ctx := context.Background()
	w := newWorker(&crew{s: s, run: ctx, calls: ctx}, f.gpus["GPU-0"].identity)
	b.ReportAllocs()
	for b.Loop() {
		if err := w.round(); err != nil {
			b.Fatal(err)
		}
	}
	s.stop()
}
