package publish

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Counters of a partitioned GPU. The whole GPU takes all of them, as do all who use it in turns together. A MIG device takes its
// memory slices, which keep overlapping placements apart, its memory, and the media extensions if it has them.
//
// Engines are no counters: the driver's own figures for them do not add up (on an H100 two 3g instances have 120 of 132
// multiprocessors and leave no room), and what a sum allows or forbids is not what the hardware does.
const (
	CounterMemory          = "memory"
	CounterMediaExtensions = "media-extensions"
	// counterMemorySlice is followed by the number of the slice.
	counterMemorySlice = "memory-slice-"
)

type counters = map[string]resourceapi.Counter

// partitioned is the pool of a partitioned GPU: a slice with its counters, then slices with its devices. The API wants the two
// apart. Where no two devices on offer exclude each other there are no counters.
func (o Options) partitioned(g *gpu.GPU, driver gpu.Driver) resourceslice.Pool {
	offer := o.Layout.Of(g)
	all := packed(offer.Devices(g))
	devices := make([]resourceapi.Device, len(all))
	for i, d := range all {
		devices[i] = o.device(d, driver)
	}
	if offer.Disjoint {
		return resourceslice.Pool{Slices: chunk(devices)}
	}
	set := resourceapi.CounterSet{Name: string(gpu.Whole{GPU: g}.Name()), Counters: total(g)}
	for i, d := range all {
		if takes := consumed(d, set.Counters); takes != nil {
			devices[i].ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: set.Name, Counters: takes}}
		}
	}
	counted := resourceslice.Slice{SharedCounters: []resourceapi.CounterSet{set}}
	return resourceslice.Pool{Slices: append([]resourceslice.Slice{counted}, chunk(devices)...)}
}

// packed puts the MIG devices, which stand together, into the order in which they are to be handed out. The scheduler takes
// the first that fits, so the least comes first: little memory, few compute slices, no media extensions. Of equal ones the
// highest placement comes first: fewer and smaller profiles reach there, so what needs the low slices stays possible longest.
func packed(devices []gpu.Device) []gpu.Device {
	slices.SortStableFunc(devices, func(a, b gpu.Device) int {
		x, isMIG := a.(gpu.MIGDevice)
		y, too := b.(gpu.MIGDevice)
		if !isMIG || !too {
			return cmp.Compare(rank(a), rank(b))
		}
		return cmp.Or(
			cmp.Compare(x.Profile.Capacity.MemoryBytes, y.Profile.Capacity.MemoryBytes),
			cmp.Compare(x.Profile.Slices, y.Profile.Slices),
			cmp.Compare(media(x), media(y)),
			cmp.Compare(x.Profile.ID, y.Profile.ID),
			cmp.Compare(y.Placement.Start, x.Placement.Start),
		)
	})
	return devices
}

// rank orders the kinds of devices.
func rank(d gpu.Device) int {
	switch d.(type) {
	case gpu.Whole:
		return 0
	case gpu.TimeSliced:
		return 1
	case gpu.MIGDevice:
		return 2
	case gpu.Monitor:
	}
	return 3
}

// total is the whole counter set of a GPU. There are media extensions in it if some profile has them.
func total(g *gpu.GPU) counters {
	set := counters{}
	if g.MIG == nil {
		set[CounterMemory] = bytes(max(g.Capacity.MemoryBytes, 1)) // of nothing everybody can have some
		return set
	}
	// A sum below what the driver can make would forbid it.
	set[CounterMemory] = bytes(max(g.Capacity.MemoryBytes, heaviest(g.MIG)))
	for i := range g.MIG.MemorySlices() {
		set[memorySlice(i)] = one()
	}
	if slices.ContainsFunc(g.MIG.Profiles, func(p gpu.MIGProfile) bool { return p.HasMediaExtensions() }) {
		set[CounterMediaExtensions] = one()
	}
	return set
}

// consumed is what a device takes of the set, nil for one that takes nothing.
func consumed(d gpu.Device, set counters) counters {
	switch d := d.(type) {
	case gpu.Whole, gpu.TimeSliced:
		return maps.Clone(set)
	case gpu.MIGDevice:
		takes := counters{CounterMemory: bytes(d.Profile.Capacity.MemoryBytes)}
		for i := range d.Placement.Size {
			takes[memorySlice(d.Placement.Start+i)] = one()
		}
		if media(d) > 0 {
			takes[CounterMediaExtensions] = one()
		}
		return takes
	case gpu.Monitor:
	}
	return nil
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

// media counts the media extensions of a device.
func media(d gpu.MIGDevice) int {
	if d.Profile.HasMediaExtensions() {
		return 1
	}
	return 0
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
