package sampling

import (
	"context"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/metrics"
)

// noInstance is NVML's instance of a process that is on none.
const noInstance = math.MaxUint32

// processReader reads the processes of a GPU.
type processReader struct {
	// lastSeen is the time of the latest utilization sample, microseconds; begun says that one was asked for before.
	lastSeen uint64
	begun    bool
	// symbols of the three lists, as the library has them.
	compute, mps, graphics string
}

// listSymbol is the name of a list of processes: the library has one of its versions.
func listSymbol(g *device, name string) string {
	for _, version := range []string{"_v3", "_v2"} {
		if g.driver.session.Has(name + version) {
			return name + version
		}
	}
	return name
}

// place is a process on a GPU or a MIG device.
type place struct{ pid, instance, compute uint32 }

// Processes lists the processes on a GPU and on the MIG devices of its round, each once, with their utilization since the last time.
// hidden: there are some that this process's pid namespace does not show. MPSServer says only that a process uses the GPU by itself and
// not through MPS: whether it is a server, the MPS service's files say. At most eight calls. It comes before Values in a round, which
// rotates through more of its values where few processes are listed.
func (d *Driver) Processes(ctx context.Context, id gpu.UUID) (processes []metrics.Process, hidden bool, err error) {
	var found []metrics.Process
	var others bool
	if err := d.group(ctx, id, func(ctx context.Context, g *device) (err error) {
		found, others, err = g.listProcesses(ctx)
		return err
	}); err != nil {
		return nil, false, err
	}
	return found, others, nil
}

func (g *device) listProcesses(ctx context.Context) (processes []metrics.Process, hidden bool, err error) {
	r := &g.processes
	if r.compute == "" {
		r.compute = listSymbol(g, "nvmlDeviceGetComputeRunningProcesses")
		r.mps = listSymbol(g, "nvmlDeviceGetMPSComputeRunningProcesses")
		r.graphics = listSymbol(g, "nvmlDeviceGetGraphicsRunningProcesses")
	}
	known := map[place]int{}
	for _, list := range []struct {
		symbol string
		fn     func() ([]nvml.ProcessInfo, nvml.Return)
		mps    bool
	}{
		{r.compute, g.handle.GetComputeRunningProcesses, false}, {r.graphics, g.handle.GetGraphicsRunningProcesses, false},
		{r.mps, g.handle.GetMPSComputeRunningProcesses, true},
	} {
		infos, ok, err := value(ctx, g, list.symbol, list.fn)
		if err != nil {
			return nil, false, err
		}
		if !ok {
			continue
		}
		if len(infos) > 1 {
			g.calls++ // go-nvml asks with room for one first, and again with room for twice as many as the driver has
		}
		for _, info := range infos {
			if info.Pid == 0 {
				hidden = true
				continue
			}
			processes = g.add(processes, known, info, list.mps)
		}
	}
	err = g.utilizations(ctx, processes)
	return processes, hidden, err
}

// add adds a process to the list, or what another list says of it.
func (g *device) add(processes []metrics.Process, known map[place]int, info nvml.ProcessInfo, mps bool) []metrics.Process {
	at := place{info.Pid, info.GpuInstanceId, info.ComputeInstanceId}
	memory := math.NaN()
	if info.UsedGpuMemory != math.MaxUint64 {
		memory = float64(info.UsedGpuMemory)
	}
	index, listed := known[at]
	if !listed {
		nan := math.NaN()
		known[at] = len(processes)
		return append(processes, metrics.Process{
			PID: info.Pid, MIG: g.migAt(info.GpuInstanceId, info.ComputeInstanceId), MemoryBytes: memory,
			SM: nan, Memory: nan, Encoder: nan, Decoder: nan, MPSServer: !mps,
		})
	}
	p := &processes[index]
	if mps {
		p.MPSServer = false
	}
	if math.IsNaN(p.MemoryBytes) || memory > p.MemoryBytes {
		p.MemoryBytes = memory
	}
	return processes
}

// migAt is the MIG device of a process, empty on a GPU without.
func (g *device) migAt(instance, compute uint32) gpu.UUID {
	if instance == noInstance {
		return ""
	}
	for i := range g.migDevices {
		facts := &g.migDevices[i].facts
		if facts.GPUInstance == int(instance) && facts.ComputeInstance == int(compute) {
			return facts.UUID
		}
	}
	return ""
}

// utilizations sets what the processes have used since the last round: the mean of the driver's samples. The driver has samples only of
// processes that use the GPU, so a process without one has used nothing. The first round has no beginning and sets nothing.
func (g *device) utilizations(ctx context.Context, processes []metrics.Process) error {
	r := &g.processes
	const symbol = "nvmlDeviceGetProcessUtilization"
	if g.identity.MIGMode || g.unsupported[symbol] {
		return nil
	}
	var empty bool
	samples, ok, err := value(ctx, g, symbol, func() ([]nvml.ProcessUtilizationSample, nvml.Return) {
		samples, ret := g.handle.GetProcessUtilization(r.lastSeen)
		if ret == nvml.ERROR_NOT_FOUND {
			empty, ret = true, nvml.SUCCESS // none newer than that
		}
		return samples, ret
	})
	if err != nil || !ok {
		return err
	}
	if !empty {
		g.calls++ // the first one asks how many there are
	}
	since := r.lastSeen
	for i := range samples {
		r.lastSeen = max(r.lastSeen, samples[i].TimeStamp)
	}
	if !r.begun {
		r.begun = true
		return nil
	}
	means := meansOf(samples, since)
	for i := range processes {
		p := &processes[i]
		m := means[p.PID]
		p.SM, p.Memory, p.Encoder, p.Decoder = m[0].ratio(), m[1].ratio(), m[2].ratio(), m[3].ratio()
	}
	return nil
}

// mean is the mean of a process's samples.
type mean struct {
	sum   float64
	count int
	bad   bool
}

func (m *mean) add(utilization uint32) {
	if utilization > maxPercent {
		m.bad = true
		return
	}
	m.sum += float64(utilization)
	m.count++
}

func (m mean) ratio() float64 {
	switch {
	case m.count > 0:
		return m.sum / float64(m.count) * percent
	case m.bad:
		return math.NaN()
	default:
		return 0
	}
}

// meansOf are the means of each process's samples that are newer than since: of SM, memory, encoder and decoder.
func meansOf(samples []nvml.ProcessUtilizationSample, since uint64) map[uint32][4]mean {
	means := make(map[uint32][4]mean)
	for i := range samples {
		s := &samples[i]
		if s.TimeStamp <= since {
			continue
		}
		all := means[s.Pid]
		for n, utilization := range [...]uint32{s.SmUtil, s.MemUtil, s.EncUtil, s.DecUtil} {
			all[n].add(utilization)
		}
		means[s.Pid] = all
	}
	return means
}
