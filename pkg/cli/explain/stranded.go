package explain

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// Counters of a partitioned GPU, as Prism publishes them.
const (
	counterMemory      = "memory"
	counterMemorySlice = "memory-slice-"
)

// Stranded is free memory of partitioned GPUs that no advertised device can use, since each that has it overlaps a device in use.
type Stranded struct {
	// Bytes are estimated: the memory of a GPU divided by its memory slices.
	Bytes        int64 `json:"bytes"`
	MemorySlices int   `json:"memorySlices"`
	GPUs         int   `json:"gpus"`
}

// add adds the memory of further GPUs.
func (s *Stranded) add(more Stranded) {
	s.Bytes += more.Bytes
	s.MemorySlices += more.MemorySlices
	s.GPUs += more.GPUs
}

// stranded returns the free memory of a pool that none of its devices can use. Taints do not matter: they end.
func stranded(p *clusterview.Pool, features structured.Features) (sum Stranded) {
	if p.State != clusterview.PoolComplete || len(p.Uses) == 0 {
		return Stranded{}
	}
	l := newLedger(p, p.Node, features)
	none := make([]bool, len(l.claims))
	// wanted are the counters of devices that are in use or can be used.
	wanted := map[counterName]bool{}
	for place := range l.devices {
		d := &l.devices[place]
		if len(d.uses) == 0 && !l.countersSuffice(d.needs, none) {
			continue
		}
		for _, consumed := range d.ConsumesCounters {
			for name := range consumed.Counters {
				wanted[counterName{consumed.CounterSet, name}] = true
			}
		}
	}
	for _, slice := range p.Slices() {
		for i := range slice.Spec.SharedCounters {
			sum.add(strandedIn(&slice.Spec.SharedCounters[i], wanted))
		}
	}
	return sum
}

// strandedIn returns the memory slices of a GPU that are not wanted.
func strandedIn(set *resourceapi.CounterSet, wanted map[counterName]bool) Stranded {
	all, left := 0, 0
	for name := range set.Counters {
		if !strings.HasPrefix(name, counterMemorySlice) {
			continue
		}
		all++
		if !wanted[counterName{set.Name, name}] {
			left++
		}
	}
	if left == 0 {
		return Stranded{}
	}
	memory := set.Counters[counterMemory]
	return Stranded{Bytes: memory.Value.Value() / int64(all) * int64(left), MemorySlices: left, GPUs: 1}
}
