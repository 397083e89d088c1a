package sampling

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// noInstance is NVML's value for a process that runs on no instance.
const noInstance = math.MaxUint32

// processReader reads the processes of a GPU.
type processReader struct {
	// lastSeen is the time of the latest utilization sample, in microseconds since 1970; begun says that samples were read before.
	lastSeen uint64
	begun    bool
	// compute, mps and graphics are the symbols of the three lists in this library.
	compute, mps, graphics string
}

// listSymbol returns the symbol of a list of processes, in the version that the library has.
func listSymbol(g *device, name string) string {
	for _, version := range []string{"_v3", "_v2"} {
		if g.driver.session.Has(name + version) {
			return name + version
		}
	}
	return name
}

// place identifies a process on a GPU or a MIG device.
type place struct{ pid, instance, compute uint32 }

// Processes lists the processes on a GPU and on the MIG devices of its round, each once, with their utilization since the last call.
// hidden: the PID namespace of this process hides some of them. ServesClients says only that a process uses the GPU itself and not through
// MPS; the files of the MPS service say whether it is a server. It costs at most eight calls. In a round, call it before Values, which
// reads more of its rotated values if few processes are listed. interval is the time between rounds: samples that lie further in the future
// are dropped, because later rounds would wait for newer ones.
func (d *Driver) Processes(ctx context.Context, id gpu.UUID, interval time.Duration) (metrics.ProcessList, error) {
	var found metrics.ProcessList
	if err := d.group(ctx, id, func(ctx context.Context, g *device) (err error) {
		if found, err = g.listProcesses(ctx); err != nil {
			return err
		}
		return g.utilizations(ctx, &found, interval)
	}); err != nil {
		return metrics.ProcessList{}, err
	}
	return found, nil
}

func (g *device) listProcesses(ctx context.Context) (list metrics.ProcessList, err error) {
	r := &g.processes
	if r.compute == "" {
		r.compute = listSymbol(g, "nvmlDeviceGetComputeRunningProcesses")
		r.mps = listSymbol(g, "nvmlDeviceGetMPSComputeRunningProcesses")
		r.graphics = listSymbol(g, "nvmlDeviceGetGraphicsRunningProcesses")
	}
	known := map[place]int{}
	for _, kind := range []struct {
		symbol string
		fn     func() ([]nvml.ProcessInfo, nvml.Return)
		mps    bool
	}{
		{r.compute, g.handle.GetComputeRunningProcesses, false}, {r.graphics, g.handle.GetGraphicsRunningProcesses, false},
		{r.mps, g.handle.GetMPSComputeRunningProcesses, true},
	} {
		infos, ok, err := value(ctx, g, kind.symbol, kind.fn)
		if err != nil {
			return list, err
		}
		if !ok {
			continue
		}
		if len(infos) > 1 {
			g.calls++ // go-nvml first calls with room for one, then with room for twice the number of the driver
		}
		for _, info := range infos {
			if info.Pid == 0 {
				list.Hidden = true
				continue
			}
			list.Processes = g.add(list.Processes, known, info, kind.mps)
		}
	}
	return list, nil
}

// add adds a process to the list, or merges it with its entry from another list.
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
			SM: nan, Memory: nan, Encoder: nan, Decoder: nan, ServesClients: !mps,
		})
	}
	p := &processes[index]
	if mps {
		p.ServesClients = false
	}
	if math.IsNaN(p.MemoryBytes) || memory > p.MemoryBytes {
		p.MemoryBytes = memory
	}
	return processes
}

// migAt returns the MIG device of a process, empty without one.
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

// utilizations sets the utilization of the processes since the last round: the mean of the driver's samples. The driver samples only
// processes that use the GPU; others get no value, and Sampled says that there was an answer. The first round sets nothing, nor does the
// first one after the clock was set back.
func (g *device) utilizations(ctx context.Context, list *metrics.ProcessList, interval time.Duration) error {
	r := &g.processes
	const symbol = "nvmlDeviceGetProcessUtilization"
	if g.identity.MIGMode || g.unsupported[symbol] {
		return nil
	}
	latest := uint64(max(0, time.Now().Add(interval).UnixMicro()))
	if r.lastSeen > latest {
		r.lastSeen, r.begun = 0, false
	}
	var empty bool
	samples, ok, err := value(ctx, g, symbol, func() ([]nvml.ProcessUtilizationSample, nvml.Return) {
		samples, ret := g.handle.GetProcessUtilization(r.lastSeen)
		if ret == nvml.ERROR_NOT_FOUND {
			empty, ret = true, nvml.SUCCESS // no newer samples
		}
		return samples, ret
	})
	if err != nil || !ok {
		return err
	}
	if !empty {
		g.calls++ // the first call asks for the number
	}
	since, all := r.lastSeen, len(samples)
	samples = slices.DeleteFunc(samples, func(s nvml.ProcessUtilizationSample) bool { return s.TimeStamp > latest })
	list.Dropped = all - len(samples)
	for i := range samples {
		r.lastSeen = max(r.lastSeen, samples[i].TimeStamp)
	}
	if !r.begun {
		r.begun = true
		return nil
	}
	list.Sampled = len(samples) > 0 || list.Dropped == 0
	means := meansOf(samples, since)
	for i := range list.Processes {
		p := &list.Processes[i]
		m := means[p.PID]
		p.SM, p.Memory, p.Encoder, p.Decoder = m[0].ratio(), m[1].ratio(), m[2].ratio(), m[3].ratio()
	}
	return nil
}

// mean is the mean of a process's samples.
type mean struct {
	sum   float64
	count int
}

func (m *mean) add(utilization uint32) {
	if utilization <= maxPercent {
		m.sum += float64(utilization)
		m.count++
	}
}

// ratio is NaN without samples.
func (m mean) ratio() float64 { return m.sum / float64(m.count) * percent }

// meansOf returns the means of each process's samples that are newer than since, for SM, memory, encoder and decoder.
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
