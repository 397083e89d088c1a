package gpu

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// profile is a row of a table of profiles.
type profile struct {
	name             string
	id, slices, size int
	starts           []int
}

// full is a GPU with these profiles, in the driver's order; without any it is a Hopper with all it has.
func full(profiles ...profile) *GPU {
	if len(profiles) == 0 {
		profiles = []profile{
			{"1g.10gb", 19, 1, 1, []int{0, 1, 2, 3, 4, 5, 6}},
			{"2g.20gb", 14, 2, 2, []int{0, 2, 4}},
			{"3g.40gb", 9, 3, 4, []int{0, 4}},
			{"4g.40gb", 5, 4, 4, []int{0}},
			{"7g.80gb", 0, 7, 8, []int{0}},
			{"1g.10gb+me", 20, 1, 1, []int{0, 1, 2, 3, 4, 5, 6}},
			{"1g.20gb", 15, 1, 2, []int{0, 2, 4, 6}},
		}
	}
	g := &GPU{UUID: "GPU-3f2a9c1b-0", ID: "3f2a9c1b", MIG: &MIG{}}
	for _, p := range profiles {
		described := MIGProfile{ID: p.id, Name: p.name, Slices: p.slices}
		for _, start := range p.starts {
			described.Placements = append(described.Placements, Placement{start, p.size})
		}
		g.MIG.Profiles = append(g.MIG.Profiles, described)
	}
	return g
}

// chosen lists the advertised devices of a disjoint GPU, as "1g.10gb@6".
func chosen(g *GPU, names ...string) string {
	var out []string
	for _, d := range (Layout{g.UUID: {MIG: names}}).Disjoint().Of(g).Devices(g) {
		if device, ok := d.(MIGDevice); ok {
			out = append(out, fmt.Sprintf("%s@%d", device.Profile.Name, device.Placement.Start))
		}
	}
	return strings.Join(out, " ")
}

func TestTiles_Profiles_AsManyAsPossible(t *testing.T) {
	t.Parallel()
	g := full()
	for profiles, want := range map[string]string{
		"1g.10gb":                               "1g.10gb@0 1g.10gb@1 1g.10gb@2 1g.10gb@3 1g.10gb@4 1g.10gb@5 1g.10gb@6",
		"1g.20gb":                               "1g.20gb@0 1g.20gb@2 1g.20gb@4 1g.20gb@6",
		"2g.20gb":                               "2g.20gb@0 2g.20gb@2 2g.20gb@4",
		"3g.40gb":                               "3g.40gb@0 3g.40gb@4",
		"7g.80gb":                               "7g.80gb@0",
		"1g.10gb+me":                            "1g.10gb+me@6",
		"3g.40gb 4g.40gb":                       "3g.40gb@4 4g.40gb@0",
		"1g.10gb 2g.20gb 3g.40gb":               "1g.10gb@0 1g.10gb@1 2g.20gb@2 3g.40gb@4",
		"1g.10gb 2g.20gb 3g.40gb 4g.40gb":       "1g.10gb@0 1g.10gb@1 2g.20gb@2 3g.40gb@4",
		"1g.10gb 7g.80gb":                       "1g.10gb@0 1g.10gb@1 1g.10gb@2 1g.10gb@3 1g.10gb@4 1g.10gb@5 1g.10gb@6",
		"3g.40gb 7g.80gb":                       "3g.40gb@0 3g.40gb@4",
		strings.Join(g.MIG.ProfileNames(), " "): "1g.10gb@3 2g.20gb@0 2g.20gb@4 1g.10gb+me@2 1g.20gb@6",
	} {
		assert.Equal(t, want, chosen(g, strings.Fields(profiles)...), profiles)
	}
}

// Only one instance contains the media extensions, so no room is kept for a second.
func TestTiles_MediaExtensions_Once(t *testing.T) {
	t.Parallel()
	g := full(
		profile{"1g.6gb", 14, 1, 1, []int{0, 1, 2, 3}}, profile{"2g.12gb", 5, 2, 2, []int{0, 2}}, profile{"4g.24gb", 0, 4, 4, []int{0}},
		profile{"1g.6gb+me", 21, 1, 1, []int{0, 1, 2, 3}}, profile{"2g.12gb+me", 6, 2, 2, []int{0, 2}},
	)
	assert.Equal(t, "1g.6gb@1 2g.12gb@2 1g.6gb+me@0", chosen(g, g.MIG.ProfileNames()...))
	assert.Equal(t, "2g.12gb+me@2", chosen(g, "1g.6gb+me", "2g.12gb+me"))
	assert.Equal(t, "2g.12gb@2 2g.12gb+me@0", chosen(g, "2g.12gb", "2g.12gb+me"))
}

// Pre-created devices are advertised, and the rest of the GPU is partitioned around them.
func TestTiles_PreCreatedDevices_Kept(t *testing.T) {
	t.Parallel()
	compute := func(slices int) []ComputeInstance { return []ComputeInstance{{Slices: slices, UUID: "MIG-1"}} }
	for name, c := range map[string]struct {
		instance Instance
		modes    []string
		want     string
	}{
		"one that is advertised": {
			Instance{Profile: 9, Placement: Placement{0, 4}, Compute: compute(3)}, []string{"1g.10gb", "3g.40gb"},
			"1g.10gb@4 1g.10gb@5 1g.10gb@6 3g.40gb@0",
		},
		"one that is not": {
			Instance{Profile: 19, Placement: Placement{2, 1}, Compute: compute(1)}, []string{"2g.20gb"},
			"1g.10gb@2 2g.20gb@0 2g.20gb@4",
		},
		"one that cannot be used": {
			Instance{Profile: 9, Placement: Placement{4, 4}}, []string{"1g.10gb", "3g.40gb"},
			"1g.10gb@0 1g.10gb@1 1g.10gb@2 1g.10gb@3",
		},
		"the media extensions": {
			Instance{Profile: 20, Placement: Placement{0, 1}, Compute: compute(1)}, []string{"1g.10gb+me", "3g.40gb"},
			"3g.40gb@4 1g.10gb+me@0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := full()
			g.MIG.Instances = []Instance{c.instance}
			assert.Equal(t, c.want, chosen(g, c.modes...))
		})
	}
}

func TestModesDevices_Disjoint_OneFamily(t *testing.T) {
	t.Parallel()
	const id = "gpu-3f2a9c1b"
	both := Modes{Whole: true, MIG: []string{"3g.40gb"}}
	migDevices := []DeviceName{id + "-mig-9-0", id + "-mig-9-4"}
	for name, c := range map[string]struct {
		modes Modes
		mig   func(*MIG)
		want  []DeviceName
	}{
		"whole":                {Modes{Whole: true}, nil, []DeviceName{id}},
		"whole before MIG":     {both, nil, []DeviceName{id}},
		"MIG":                  {Modes{MIG: []string{"3g.40gb"}}, nil, migDevices},
		"in MIG mode for good": {both, func(m *MIG) { m.Mode = MIGMode{NeedsReset: true, Enabled: true} }, migDevices},
		"not in MIG mode":      {Modes{MIG: []string{"3g.40gb"}}, func(m *MIG) { m.Mode = MIGMode{NeedsReset: true} }, nil},
		"pre-created":          {both, func(m *MIG) { m.Instances = []Instance{{Profile: 9, Placement: Placement{4, 4}}} }, migDevices[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := full()
			if c.mig != nil {
				c.mig(g.MIG)
			}
			layout := Layout{g.UUID: c.modes}
			disjoint := layout.Disjoint()
			assert.Equal(t, c.want, advertised(disjoint.Of(g), g))
			assert.Equal(t, layout.Of(g).Pool("node-1", g), disjoint.Of(g).Pool("node-1", g), "the pool stays")
			assert.Equal(t, c.modes, layout[g.UUID], "the layout stays")
			assert.Equal(t, disjoint, disjoint.Disjoint())
		})
	}
	assert.Nil(t, Layout(nil).Disjoint(), "no layout: whole")
	assert.Empty(t, advertised(Modes{MIG: []string{"3g.40gb"}, Disjoint: true}, &GPU{ID: "1"}), "a GPU that reports nothing of MIG")
}
