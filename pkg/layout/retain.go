package driver

import (
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// keep is what a GPU is to be offered as while these records are there: what is wanted, or, where it would not have every device
// that a claim owns in the pool that the claim has it from, that and those. What cannot be restored is withheld instead.
func keep(node string, g *gpu.GPU, layout gpu.Layout, records []*checkpoint.Record) gpu.Offer {
	offer := layout.Of(g)
	kept, missing := offer, false
	for _, r := range records {
		for i := range r.Results {
			result := &r.Results[i]
			if result.GPUUUID != g.UUID || result.Admin || advertised(node, g, offer, result) || !restorable(result) {
				continue
			}
			missing = true
			if result.Pool == node {
				return gpu.Offer{Whole: true}
			}
			switch result.Type {
			case gpu.TypeMIG:
				kept = kept.With(result.MIG.Name, g)
			case gpu.TypeTimeSlice:
				kept.TimeSlice = &gpu.Replicas{Count: result.Share.Replicas, ShareName: result.Share.Name}
			case gpu.TypeGPU:
				kept.Whole, kept.Static = true, true
			case gpu.TypeMonitor: // owns nothing
			}
		}
	}
	if missing {
		return kept
	}
	return offer
}

// restorable tells whether the plugin can advertise the device of a result again. It makes no MIG device in the name of an administrator,
// and knows nothing of the types of later versions.
func restorable(result *checkpoint.Result) bool {
	switch result.Type {
	case gpu.TypeGPU:
		return true
	case gpu.TypeTimeSlice:
		return result.Share != nil
	case gpu.TypeMIG:
		return result.MIG != nil && !result.MIG.Static
	case gpu.TypeMonitor:
	}
	return false
}

// apart is a disjoint offer that has nothing which a claim's device excludes. An API server that stopped keeping counters finds slices of
// a GPU in use that it would now offer as a whole.
func apart(node string, g *gpu.GPU, offer gpu.Offer, records []*checkpoint.Record) gpu.Offer {
	var held []*checkpoint.Result
	parts := gpu.Offer{Static: true, Disjoint: true}
	for _, r := range records {
		for i := range r.Results {
			result := &r.Results[i]
			if result.GPUUUID != g.UUID || result.Admin || result.Pool != offer.Pool(node, g) || !restorable(result) {
				continue // where it is not advertised it is withheld, so that nothing here excludes it
			}
			held = append(held, result)
			if result.MIG != nil {
				parts = parts.With(result.MIG.Name, g)
			}
		}
	}
	for _, candidate := range []gpu.Offer{offer, parts} {
		all := true
		for _, result := range held {
			all = all && advertised(node, g, candidate, result)
		}
		if all {
			return candidate
		}
	}
	return gpu.Offer{Static: true, Disjoint: true}
}

// withheld is what claims have of a GPU and no device of the offer stands for, so that the scheduler does not count it: a MIG device of
// an administrator that is not there any more, a device of a type that only a later version knows.
func withheld(node string, g *gpu.GPU, offer gpu.Offer, records []*checkpoint.Record) (uses []gpu.Use) {
	for _, r := range records {
		for i := range r.Results {
			result := &r.Results[i]
			if result.GPUUUID != g.UUID || result.Admin || advertised(node, g, offer, result) {
				continue
			}
			if use := result.Use(); !slices.Contains(uses, use) {
				uses = append(uses, use)
			}
		}
	}
	return uses
}

// freed tells whether something else is on offer now, because a claim is gone for whose record devices were withheld.
func (o *Offering) freed() bool {
	o.mu.Lock()
	withholding := false
	for _, offer := range o.layout {
		withholding = withholding || len(offer.Withheld) > 0
	}
	o.mu.Unlock()
	if !withholding {
		return false
	}
	records, err := o.ports.Records()
	if err != nil {
		return false // what is withheld stays so
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil {
		return false // all is worked out anew in any case
	}
	for i := range o.seen.Node.GPUs {
		g := &o.seen.Node.GPUs[i]
		offer := o.layout.Of(g)
		before := offer.Withheld
		offer.Withheld = nil
		if !slices.Equal(before, withheld(o.ports.NodeName, g, offer, records)) {
			o.seen = nil
			return true
		}
	}
	return false
}

// advertised tells whether an offer has the very device that a claim was given: a MIG device of an administrator is none that the plugin
// would make in its place.
func advertised(node string, g *gpu.GPU, offer gpu.Offer, result *checkpoint.Result) bool {
	if result.Pool != offer.Pool(node, g) {
		return false
	}
	return slices.ContainsFunc(offer.Devices(g), func(d gpu.Device) bool {
		slice, isMIG := d.(gpu.MIGDevice)
		made := isMIG && slice.Static == nil && result.MIG != nil && result.MIG.Static
		return string(d.Name()) == result.Device && !made
	})
}
