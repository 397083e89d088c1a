package scale

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Utilization is the utilization that Cluster Autoscaler computes for a node, 0 to 1: below its threshold (default 0.5) it may drain the node.
//
// It is a model of HighestDynamicResourceUtilization in cluster-autoscaler/simulator/dynamicresources/utils/utilization.go of
// kubernetes/autoscaler, as of commit 0046c5d1. That module cannot be imported without the whole of k8s.io/kubernetes. The utilization of a
// node is the utilization of its fullest pool. In a pool, devices without counters count one by one: the allocated ones divided by all.
// Each counter set counts as one device that is as full as the fullest of its counters. If a pool contains both, the mean is weighted by
// their numbers.
func Utilization(slices []*resourceapi.ResourceSlice, taken sets.Set[structured.DeviceID]) float64 {
	pools := map[string]*poolUse{}
	for _, slice := range slices {
		name := slice.Spec.Pool.Name
		if pools[name] == nil {
			pools[name] = &poolUse{sets: map[string]resourceapi.CounterSet{}, consumed: map[string]map[string]int64{}}
		}
		pools[name].add(slice, taken)
	}
	highest := 0.0
	for _, pool := range pools {
		highest = max(highest, pool.utilization())
	}
	return highest
}

// poolUse is the allocated part of a pool.
type poolUse struct {
	sets map[string]resourceapi.CounterSet
	// consumed is the consumption of allocated devices by counter set and counter. Every set that a device consumes has an entry.
	consumed map[string]map[string]int64
	// plain counts devices without counters; partitioned: an allocated device consumes counters.
	plain, plainTaken int
	partitioned       bool
}

func (p *poolUse) add(slice *resourceapi.ResourceSlice, taken sets.Set[structured.DeviceID]) {
	for _, set := range slice.Spec.SharedCounters {
		p.sets[set.Name] = set
	}
	for i := range slice.Spec.Devices {
		d := &slice.Spec.Devices[i]
		allocated := taken.Has(structured.MakeDeviceID(slice.Spec.Driver, slice.Spec.Pool.Name, d.Name))
		if len(d.ConsumesCounters) == 0 {
			p.plain++
			if allocated {
				p.plainTaken++
			}
			continue
		}
		p.partitioned = p.partitioned || allocated
		for _, consumption := range d.ConsumesCounters {
			if p.consumed[consumption.CounterSet] == nil {
				p.consumed[consumption.CounterSet] = map[string]int64{}
			}
			for counter, value := range consumption.Counters {
				if allocated {
					p.consumed[consumption.CounterSet][counter] += value.Value.Value()
				}
			}
		}
	}
}

func (p *poolUse) utilization() float64 {
	plain := 0.0
	if p.plain > 0 {
		plain = float64(p.plainTaken) / float64(p.plain)
	}
	if !p.partitioned {
		return plain
	}
	partitioned := 0.0
	for name, set := range p.sets {
		fullest := 0.0
		for counter, total := range set.Counters {
			if n := total.Value.Value(); n > 0 {
				fullest = max(fullest, float64(p.consumed[name][counter])/float64(n))
			}
		}
		partitioned += fullest / float64(len(p.consumed))
	}
	if p.plainTaken == 0 {
		return partitioned
	}
	all := float64(p.plain + len(p.consumed))
	return partitioned*float64(len(p.consumed))/all + plain*float64(p.plain)/all
}

// UtilizationRow is the utilization of a node with some devices allocated.
type UtilizationRow struct {
	Layout string
	// What describes the allocated devices.
	What  string
	Value float64
}

// Utilizations computes the utilization for each layout and several allocations.
func Utilizations(ctx context.Context, layouts []Layout) ([]UtilizationRow, error) {
	n, err := Simulated(ctx)
	if err != nil {
		return nil, err
	}
	var rows []UtilizationRow
	for i := range layouts {
		for _, c := range []struct {
			what  string
			kind  RequestKind
			count int
		}{
			{"8 of 8 GPUs", RequestGPU, 8},
			{"7 of 8 GPUs", RequestGPU, 7},
			{"1 of 8 GPUs", RequestGPU, 1},
			{"one MIG device of 56", RequestProfile, 1},
			{"28 MIG devices of 56", RequestProfile, 28},
			{"56 MIG devices of 56", RequestProfile, 56},
		} {
			if layouts[i].Requests[c.kind] == nil {
				continue
			}
			value, err := utilizationOf(ctx, &layouts[i], n, c.kind, c.count)
			if err != nil {
				return nil, err
			}
			rows = append(rows, UtilizationRow{Layout: layouts[i].Name, What: c.what, Value: value})
		}
	}
	return rows, nil
}

func utilizationOf(ctx context.Context, l *Layout, n *gpu.Node, kind RequestKind, count int) (float64, error) {
	s := newNode(l, "node", n)
	got, err := s.fill(ctx, l.Requests[kind], count)
	if err == nil && len(got) != count {
		err = fmt.Errorf("layout %s: %d devices were allocated instead of %d", l.Name, len(got), count)
	}
	return Utilization(s.slices, s.taken), err
}
