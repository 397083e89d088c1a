package gpu

import (
	"cmp"
	"slices"
)

// tiles chooses MIG devices that can all exist at the same time; the order of the devices stays.
//
// Pre-created MIG devices come first. Then rounds of all profiles follow, the largest first, each with its highest free placement: fewer
// profiles reach there. In the first round a profile is left out if it would take the memory slices of smaller ones, so that as many
// profiles as possible are advertised. The choice does not depend on present claims.
func tiles(g *GPU, devices []MIGDevice) []MIGDevice {
	t := tiling{free: g.MIG.MemorySlices()}
	for _, instance := range g.MIG.Instances {
		t.put(instance)
	}
	static := t.taken
	chosen := slices.DeleteFunc(slices.Clone(devices), func(d MIGDevice) bool { return !slices.ContainsFunc(static, d.is) })
	profiles := bySize(devices)
	for first, more := true, true; more; first = false {
		more = false
		for i, profile := range profiles {
			d, fits := t.next(profile)
			if !fits || first && t.free-d.Placement.Size < t.need(profiles[i+1:]) {
				continue
			}
			t.put(Instance{Profile: d.Profile.ID, Placement: d.Placement})
			chosen, more = append(chosen, d), true
		}
	}
	return slices.DeleteFunc(slices.Clone(devices), func(d MIGDevice) bool { return !slices.Contains(chosen, d) })
}

// bySize puts the devices of one profile together, the largest profile first, equal ones in their order.
func bySize(devices []MIGDevice) [][]MIGDevice {
	var profiles [][]MIGDevice
	for i, d := range devices {
		if i == 0 || d.Profile != devices[i-1].Profile {
			profiles = append(profiles, nil)
		}
		profiles[len(profiles)-1] = append(profiles[len(profiles)-1], d)
	}
	slices.SortStableFunc(profiles, func(a, b []MIGDevice) int {
		return cmp.Or(cmp.Compare(b[0].Placement.Size, a[0].Placement.Size), cmp.Compare(b[0].Profile.Slices, a[0].Profile.Slices))
	})
	return profiles
}

// tiling is a GPU that fills up with instances.
type tiling struct {
	taken []Instance
	// free counts memory slices.
	free int
}

func (t *tiling) put(instance Instance) {
	t.taken = append(t.taken, instance)
	t.free -= instance.Placement.Size
}

// next is the highest placement of a profile that can be beside the chosen devices, false if there is none.
func (t *tiling) next(profile []MIGDevice) (MIGDevice, bool) {
	var best MIGDevice
	found := false
	for _, d := range profile {
		excluded := slices.ContainsFunc(t.taken, func(instance Instance) bool { return d.excludes(&instance) })
		if !excluded && (!found || d.Placement.Start > best.Placement.Start) {
			best, found = d, true
		}
	}
	return best, found
}

// need counts the memory slices that one of each of these profiles takes, the largest first, if it still fits. Of profiles with media
// extensions only one can be there.
func (t *tiling) need(profiles [][]MIGDevice) int {
	plain, extended := 0, 0
	for _, profile := range profiles {
		d, fits := t.next(profile)
		switch {
		case !fits:
		case d.Profile.HasMediaExtensions():
			extended = d.Placement.Size
		default:
			plain += d.Placement.Size
		}
	}
	return plain + extended
}
