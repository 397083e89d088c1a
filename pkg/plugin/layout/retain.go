package layout

import (
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// keep is the layout of a GPU while these records are there: the desired one, plus the owned devices that it does not have in the pool of
// their claims. A device that cannot be restored is withheld instead.
func keep(node string, g *gpu.GPU, layout gpu.Layout, records []*checkpoint.Record) gpu.Modes {
	as := layout.Of(g)
	kept, missing := as, false
	for _, r := range records {
		for i := range r.Results {
			result := &r.Results[i]
			if result.GPUUUID != g.UUID || result.Admin || advertised(node, g, as, result) || !restorable(result) {
				continue
			}
			missing = true
			if result.Pool == node {
				return gpu.Modes{Whole: true}
			}
			switch result.Type {
			case gpu.TypeMIG:
				kept = kept.With(result.MIG.Name, g)
			case gpu.TypeTimeSlice:
				kept.TimeSlice = &gpu.Replicas{Count: result.Share.Replicas, ShareName: result.Share.Name}
			case gpu.TypeGPU:
				kept.Whole, kept.Static = true, true
			default: // not restorable
			}
		}
	}
	if missing {
		return kept
	}
	return as
}

// restorable reports whether the plugin can advertise the device of a result again. It creates no MIG device in the place of a pre-created
// one, and does not know the types of later versions. The record of a consumable device contains the consumption of one claim, but not the
// limit for all shares of the GPU: with a guess the scheduler would count other sums than it used to allocate the running claims.
func restorable(result *checkpoint.Result) bool {
	switch result.Type {
	case gpu.TypeGPU:
		return true
	case gpu.TypeTimeSlice:
		return result.Share != nil
	case gpu.TypeMIG:
		return result.MIG != nil && !result.MIG.Static
	default:
		return false
	}
}

// disjoint is a disjoint layout of a GPU without devices that a claim's device excludes: if the API server stopped storing counters, MIG
// devices may be in use on a GPU that would now be advertised whole.
func disjoint(node string, g *gpu.GPU, as gpu.Modes, records []*checkpoint.Record) gpu.Modes {
	var held []*checkpoint.Result
	parts := gpu.Modes{Static: true, Disjoint: true}
	for _, r := range records {
		for i := range r.Results {
			result := &r.Results[i]
			counts := restorable(result) || result.Type.Consumable()
			if result.GPUUUID != g.UUID || result.Admin || result.Pool != as.Pool(node, g) || !counts {
				continue // a device that is not advertised is withheld, and excludes no device of this layout
			}
			held = append(held, result)
			if result.MIG != nil {
				parts = parts.With(result.MIG.Name, g)
			}
		}
	}
	for _, candidate := range []gpu.Modes{as, parts} {
		all := true
		for _, result := range held {
			all = all && advertised(node, g, candidate, result)
		}
		if all {
			return candidate
		}
	}
	return gpu.Modes{Static: true, Disjoint: true}
}

// withheld are the devices that claims own on a GPU and that are not in its layout, so that the scheduler does not count them: a static MIG
// device that is not there any more, an MPS share if neither the saved layout nor the configuration contains any, or a device of a type
// that only a later version supports.
func withheld(node string, g *gpu.GPU, as gpu.Modes, records []*checkpoint.Record) (uses []gpu.Use) {
	for _, r := range records {
		for i := range r.Results {
			result := &r.Results[i]
			if result.GPUUUID != g.UUID || result.Admin || !result.Type.UsesGPU() || advertised(node, g, as, result) {
				continue
			}
			if use := result.Use(); !slices.Contains(uses, use) {
				uses = append(uses, use)
			}
		}
	}
	return uses
}

// withholds reports whether devices are not advertised because of claims whose devices are not in a layout.
func (s *Snapshot) withholds() bool {
	for _, as := range s.Layout {
		if len(as.Withheld) > 0 {
			return true
		}
	}
	return false
}

// released reports whether other devices are withheld with these records of the node.
func (s *Snapshot) released(node string, records []*checkpoint.Record) bool {
	for i := range s.Node.GPUs {
		g := &s.Node.GPUs[i]
		as := s.Layout.Of(g)
		before := as.Withheld
		as.Withheld = nil
		if !slices.Equal(before, withheld(node, g, as, records)) {
			return true
		}
	}
	return false
}

// advertised reports whether a layout contains the same device that a claim was allocated: a pre-created MIG device is not the one that the
// plugin would create at its placement.
func advertised(node string, g *gpu.GPU, as gpu.Modes, result *checkpoint.Result) bool {
	if result.Pool != as.Pool(node, g) {
		return false
	}
	return slices.ContainsFunc(as.Devices(g), func(d gpu.Device) bool {
		device, isMIG := d.(gpu.MIGDevice)
		created := isMIG && device.Static == nil && result.MIG != nil && result.MIG.Static
		return string(d.Name()) == result.Device && !created
	})
}
