package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// rounding is the tolerance for sums of shares.
const rounding = 1e-9

// work returns the use of the multiprocessors by all contexts, in percent, at most 100.
func (o *occupancy) work() float64 {
	sum := 0.0
	for _, c := range o.contexts {
		sum += c.sm
	}
	return min(sum, 100)
}

// share returns the use of the multiprocessors by a context: if contexts request more than 100 percent, all get less.
func (o *occupancy) share(c *cudaContext) float64 {
	sum := 0.0
	for _, other := range o.contexts {
		sum += other.sm
	}
	return c.sm * min(1, 100/max(sum, 1))
}

// work returns the use of the multiprocessors of a GPU instance, in percent.
func (gi *gpuInstance) work() float64 {
	sum := 0.0
	for _, ci := range gi.compute {
		sum += ci.cuda.work() * float64(ci.profile.Multiprocessors) / float64(gi.profile.Multiprocessors)
	}
	return min(sum, 100)
}

// SetWork sets the share of the multiprocessors that a context requests from now on, in percent. It fails with InvalidArgument outside 0 to
// 100, else like Allocate.
func (s *Session) SetWork(h Handle, id uint64, sm float64) error {
	return s.withContext(h, id, func(_ *gpu, _ *occupancy, c *cudaContext, _ uint64) error {
		if !(sm >= 0 && sm <= 100) {
			return InvalidArgument
		}
		c.sm = sm
		return nil
	})
}

// SetLoad makes the GPU or MIG device with that UUID follow the script from now on; the script of a MIG device is for its GPU instance. A
// script without steps ends one. It fails with NotFound if there is no such device.
func (n *Node) SetLoad(uuid string, script Script) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	g, m := n.meterOf(uuid)
	if m == nil {
		return fmt.Errorf("setting the load of %q: no GPU or MIG device of the node has this UUID: %w", uuid, NotFound)
	}
	if err := script.check(m != &g.meter); err != nil {
		return fmt.Errorf("setting the load of %s: %w", uuid, err)
	}
	g.advance(n.now())
	m.script, m.began = script, g.at
	return nil
}

// endScripts makes the activity of the GPU and its instances follow from their processes.
func (g *gpu) endScripts() {
	g.meter.script = Script{}
	for _, gi := range g.mig.instances {
		gi.meter.script = Script{}
	}
}

func (n *Node) meterOf(uuid string) (*gpu, *meter) {
	for _, g := range n.gpus {
		if g.id.UUID == uuid {
			return g, &g.meter
		}
		if gi, _ := g.mig.compute(func(ci *computeInstance) bool { return ci.uuid == uuid }); gi != nil {
			return g, &gi.meter
		}
	}
	return nil, nil
}

// SetClock replaces the clock of the node, for tests. It must not go back.
func (n *Node) SetClock(now func() time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = now
	for _, g := range n.gpus {
		g.at = now()
	}
}

// ProcessSample is the utilization of a process at a time, in percent.
type ProcessSample struct {
	PID        int
	Time       uint64 // microseconds since 1970
	SM, Memory uint32
}

// sample records the utilization of the processes at the last tick in a time.
func (g *gpu) sample(from, until time.Time) {
	period := samplePeriod.Microseconds()
	tick := until.UnixMicro() / period * period
	if tick <= from.UnixMicro() {
		return
	}
	shares := map[int]float64{}
	for _, c := range g.cuda.contexts {
		if c.sm > 0 {
			shares[c.PID] += g.cuda.share(c)
		}
	}
	for pid, old := range g.samples {
		if int64(old.Time) < tick-sampleBuffer.Microseconds() {
			delete(g.samples, pid)
		}
	}
	if g.samples == nil {
		g.samples = map[int]ProcessSample{}
	}
	for pid, share := range shares {
		g.samples[pid] = ProcessSample{
			PID: pid, Time: uint64(tick), SM: uint32(math.Floor(share + rounding)), Memory: uint32(share/2 + rounding),
		}
	}
}

// ProcessUtilization lists the last sample of each process after a time, also of processes that have exited since. It fails
// with NotSupported for a MIG device and a GPU in MIG mode, and NotFound without samples.
func (s *Session) ProcessUtilization(h Handle, lastSeen uint64) ([]ProcessSample, error) {
	var list []ProcessSample
	err := s.withParent(h, func(g *gpu) error {
		if h.kind() != 0 || g.mig.current {
			return NotSupported
		}
		g.advance(s.node.now())
		for _, sample := range g.samples {
			if sample.Time > lastSeen {
				list = append(list, sample)
			}
		}
		if len(list) == 0 {
			return NotFound
		}
		return nil
	})
	slices.SortFunc(list, func(a, b ProcessSample) int { return cmp.Compare(a.PID, b.PID) })
	return list, err
}
