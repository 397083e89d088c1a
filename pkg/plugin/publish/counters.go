package publish

import (
	"slices"
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Counters of a partitioned GPU. The whole GPU takes all of them, as do all claims together that share it by time-slicing. A MIG device
// takes its memory slices, which keep overlapping placements apart, its memory, and the media extensions if it has them.
//
// Engines are no counters: the driver's own figures for them do not add up (on an H100 two 3g instances have 120 of 132 multiprocessors and
// leave no room), and their sums allow and forbid other combinations than the hardware.
const (
	CounterMemory          = "memory"
	CounterMediaExtensions = "media-extensions"
	// counterMemorySlice is followed by the number of the memory slice.
	counterMemorySlice = "memory-slice-"
)

// partitioned is the pool of a partitioned GPU: a ResourceSlice with its counters, then ResourceSlices with its devices. The API requires
// the two to be separate. If no two advertised devices exclude each other, there are no counters.
func (o Options) partitioned(g *gpu.GPU, node *gpu.Node) catalogPool {
	modes := o.Layout.Of(g)
	pool := catalogPool{name: modes.Pool(o.NodeName, g)}
	if modes.Disjoint {
		pool.devices = o.describe(modes.Devices(g), node, nil)
		return pool
	}
	pool.counters = []resourceapi.CounterSet{{Name: string(gpu.Whole{GPU: g}.Name()), Counters: total(g)}}
	pool.devices = o.describe(modes.Devices(g), node, &pool.counters[0])
	return pool
}

// total is the whole counter set of a GPU. It contains media extensions if some profile has them.
func total(g *gpu.GPU) Counters {
	set := Counters{}
	if g.MIG == nil {
		set[CounterMemory] = bytes(max(g.Capacity.MemoryBytes, 1)) // a counter of nothing excludes nothing
		return set
	}
	// A sum smaller than a set of devices that the driver can create would forbid that set.
	set[CounterMemory] = bytes(max(g.Capacity.MemoryBytes, heaviest(g.MIG)))
	for i := range g.MIG.MemorySlices() {
		set[memorySlice(i)] = one()
	}
	if slices.ContainsFunc(g.MIG.Profiles, func(p gpu.MIGProfile) bool { return p.HasMediaExtensions() }) {
		set[CounterMediaExtensions] = one()
	}
	return set
}

// heaviest is the most memory that instances which do not overlap can have together.
func heaviest(m *gpu.MIG) uint64 {
	n := m.MemorySlices()
	most := make([]uint64, n+1)
	for end := 1; end <= n; end++ {
		most[end] = most[end-1]
		for i := range m.Profiles {
			for _, p := range m.Profiles[i].Placements {
				if p.Start+p.Size == end {
					most[end] = max(most[end], most[p.Start]+m.Profiles[i].Capacity.MemoryBytes)
				}
			}
		}
	}
	return most[n]
}

func memorySlice(i int) string { return counterMemorySlice + strconv.Itoa(i) }

// bytes counts memory.
func bytes(n uint64) resourceapi.Counter {
	return resourceapi.Counter{Value: quantity(n, resource.BinarySI).Value}
}

// one counts a thing that a GPU has once.
func one() resourceapi.Counter {
	return resourceapi.Counter{Value: quantity(1, resource.DecimalSI).Value}
}
