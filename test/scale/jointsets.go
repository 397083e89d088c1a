package scale

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// JointSets compares, for one GPU, the sets of MIG devices that the published counters admit with the sets that the hardware supports: on
// hardware, placements do not overlap and at most one instance uses the media extensions. The tests of pkg/plugin/publish verify that with the
// simulated driver for every set.
type JointSets struct {
	Layout string
	// Devices is the number of MIG devices of a GPU.
	Devices int
	// Both counts the sets that counters and hardware admit, the others the sets that only one of them admits.
	Both, OnlyCounters, OnlyHardware int
}

// Sets compares all sets of MIG devices of one GPU for each layout with MIG devices.
func Sets(ctx context.Context, layouts []Layout) ([]JointSets, error) {
	n, err := Simulated(ctx)
	if err != nil {
		return nil, err
	}
	one := *n
	one.GPUs = n.GPUs[:1]
	var all []JointSets
	for i := range layouts {
		l := &layouts[i]
		if l.Requests[RequestProfile] == nil {
			continue
		}
		w, err := newWalk(l, &one)
		if err != nil {
			return nil, err
		}
		w.from(0, nil)
		all = append(all, w.found)
	}
	return all, nil
}

// counted is a MIG device with its placement and the counters that it consumes.
type counted struct {
	at    gpu.Placement
	media bool
	takes map[string]int64
}

// walk visits each set of devices once.
type walk struct {
	total   map[string]int64
	devices []counted
	found   JointSets
}

func newWalk(l *Layout, n *gpu.Node) (*walk, error) {
	w := &walk{total: map[string]int64{}, found: JointSets{Layout: l.Name}}
	pools := l.Pools("node", n)
	var published []resourceapi.Device
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		for _, s := range pools[name].Slices {
			for _, set := range s.SharedCounters {
				for counter, value := range set.Counters {
					w.total[counter] = value.Value.Value()
				}
			}
			published = append(published, s.Devices...)
		}
	}
	for i := range published {
		d := &published[i]
		if *d.Attributes["type"].StringValue != string(gpu.TypeMIG) {
			continue
		}
		device, err := countedOf(d)
		if err != nil {
			return nil, fmt.Errorf("layout %s: %w", l.Name, err)
		}
		w.devices = append(w.devices, device)
	}
	w.found.Devices = len(w.devices)
	return w, nil
}

// countedOf reads the placement from the memory slices that the device consumes.
func countedOf(d *resourceapi.Device) (counted, error) {
	profile := gpu.MIGProfile{Name: *d.Attributes["profile"].StringValue}
	c := counted{media: profile.HasMediaExtensions(), takes: map[string]int64{}, at: gpu.Placement{Start: -1}}
	for _, consumption := range d.ConsumesCounters {
		for counter, value := range consumption.Counters {
			c.takes[counter] = value.Value.Value()
			number, isSlice := strings.CutPrefix(counter, "memory-slice-")
			if !isSlice {
				continue
			}
			var slice int
			if _, err := fmt.Sscan(number, &slice); err != nil {
				return c, fmt.Errorf("device %s consumes counter %q: %w", d.Name, counter, err)
			}
			if c.at.Start < 0 || slice < c.at.Start {
				c.at.Start = slice
			}
			c.at.Size++
		}
	}
	return c, nil
}

// from visits the supersets of a set with devices from the kth on.
func (w *walk) from(k int, set []counted) {
	for i := k; i < len(w.devices); i++ {
		next := append(slices.Clone(set), w.devices[i])
		counters, hardware := w.admits(next), possible(next)
		switch {
		case counters && hardware:
			w.found.Both++
		case counters:
			w.found.OnlyCounters++
		case hardware:
			w.found.OnlyHardware++
		default:
			continue // no superset is admitted either
		}
		w.from(i+1, next)
	}
}

// admits reports whether the counters suffice for the set.
func (w *walk) admits(set []counted) bool {
	sum := map[string]int64{}
	for i := range set {
		for counter, n := range set[i].takes {
			if sum[counter] += n; sum[counter] > w.total[counter] {
				return false
			}
		}
	}
	return true
}

// possible reports whether the hardware supports the set.
func possible(set []counted) bool {
	media := 0
	for i := range set {
		if set[i].media {
			media++
		}
		for j := range i {
			if set[i].at.Overlaps(set[j].at) {
				return false
			}
		}
	}
	return media <= 1
}
