package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPlacementOverlaps_Pairs_CommonMemorySlices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b Placement
		want bool
	}{
		{Placement{0, 4}, Placement{4, 4}, false},
		{Placement{0, 4}, Placement{3, 1}, true},
		{Placement{2, 2}, Placement{0, 8}, true},
		{Placement{6, 1}, Placement{5, 1}, false},
		{Placement{6, 1}, Placement{6, 2}, true},
	} {
		assert.Equal(t, c.want, c.a.Overlaps(c.b), "%v and %v", c.a, c.b)
		assert.Equal(t, c.want, c.b.Overlaps(c.a), "%v and %v", c.b, c.a)
	}
}

func TestHasMediaExtensions_ProfileNames_AsNamed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"1g.10gb": false, "1g.10gb+me": true, "2g.12gb+me": true, "1g.24gb+me.all": true, "1g.24gb-me": false,
		"1g.24gb+gfx": false, "1g.24gb+gfx+me": true, "1g.24gb+media": false,
	} {
		assert.Equal(t, want, (&MIGProfile{Name: name}).HasMediaExtensions(), name)
	}
}

// hopper is a GPU with some of a Hopper's profiles.
func hopper() *GPU {
	return &GPU{UUID: "GPU-3f2a9c1b-0", ID: "3f2a9c1b", MIG: &MIG{Profiles: []MIGProfile{
		{ID: 19, Name: "1g.10gb", Slices: 1, Placements: []Placement{{0, 1}, {5, 1}, {6, 1}}},
		{ID: 9, Name: "3g.40gb", Slices: 3, Placements: []Placement{{0, 4}, {4, 4}}},
		{ID: 20, Name: "1g.10gb+me", Slices: 1, Placements: []Placement{{0, 1}, {6, 1}}},
	}}}
}

// all advertises the GPU whole and in every profile.
var all = Modes{Whole: true, MIG: []string{"1g.10gb", "3g.40gb", "1g.10gb+me"}}

func advertised(o Modes, g *GPU) []DeviceName {
	var names []DeviceName
	for _, d := range o.Devices(g) {
		names = append(names, d.Name())
	}
	return names
}

func TestModesDevices_StatesOfAGPU_WhatCanBeAllocated(t *testing.T) {
	t.Parallel()
	const id = "gpu-3f2a9c1b"
	names := func(suffixes ...DeviceName) []DeviceName {
		for i := range suffixes {
			suffixes[i] = id + suffixes[i]
		}
		return suffixes
	}
	everySlice := []DeviceName{"-mig-19-0", "-mig-19-5", "-mig-19-6", "-mig-9-0", "-mig-9-4", "-mig-20-0", "-mig-20-6"}
	compute, part := []ComputeInstance{{Slices: 1, UUID: "MIG-1"}}, []ComputeInstance{{Slices: 1, Part: true, UUID: "MIG-1"}}
	for name, c := range map[string]struct {
		modes Modes
		mig   func(*MIG)
		want  []DeviceName
	}{
		"whole":             {Modes{Whole: true}, nil, names("")},
		"everything":        {all, nil, names(append([]DeviceName{""}, everySlice...)...)},
		"no whole GPU":      {Modes{MIG: []string{"3g.40gb"}}, nil, names("-mig-9-0", "-mig-9-4")},
		"reset, mode off":   {all, func(m *MIG) { m.Mode.NeedsReset = true }, names("")},
		"reset, mode on":    {all, func(m *MIG) { m.Mode = MIGMode{NeedsReset: true, Enabled: true} }, names(everySlice...)},
		"reset, pending on": {all, func(m *MIG) { m.Mode = MIGMode{NeedsReset: true, Pending: true} }, names("")},
		"static": {
			all, func(m *MIG) {
				m.Instances = []Instance{{ID: 1, Profile: 19, Placement: Placement{6, 1}, Compute: compute}}
			},
			names("-mig-19-0", "-mig-19-5", "-mig-19-6", "-mig-9-0", "-mig-20-0"),
		},
		"static of a profile that is not advertised": {
			Modes{Whole: true, MIG: []string{"3g.40gb"}},
			func(m *MIG) {
				m.Instances = []Instance{{ID: 1, Profile: 19, Placement: Placement{6, 1}, Compute: compute}}
			},
			names("-mig-19-6", "-mig-9-0"),
		},
		"static with the media extensions": {
			all, func(m *MIG) {
				m.Instances = []Instance{{ID: 1, Profile: 20, Placement: Placement{6, 1}, Compute: compute}}
			},
			names("-mig-19-0", "-mig-19-5", "-mig-9-0", "-mig-20-6"),
		},
		"static without a compute instance": {
			all, func(m *MIG) { m.Instances = []Instance{{ID: 1, Profile: 9, Placement: Placement{4, 4}}} },
			names("-mig-19-0", "-mig-9-0", "-mig-20-0"),
		},
		"static partitioned further": {
			all, func(m *MIG) {
				m.Instances = []Instance{{ID: 1, Profile: 9, Placement: Placement{4, 4}, Compute: part}}
			},
			names("-mig-19-0", "-mig-9-0", "-mig-20-0"),
		},
		"static of as many compute slices with fewer multiprocessors": {
			all, func(m *MIG) {
				m.Instances = []Instance{{ID: 1, Profile: 19, Placement: Placement{6, 1}, Compute: part}}
			},
			names("-mig-19-0", "-mig-19-5", "-mig-9-0", "-mig-20-0"),
		},
		"static of an unknown profile": {
			all, func(m *MIG) {
				m.Instances = []Instance{{ID: 1, Profile: 99, Placement: Placement{5, 3}, Compute: compute}}
			},
			names("-mig-19-0", "-mig-9-0", "-mig-20-0"),
		},
		"a static one where the GPU was to be advertised whole": {
			Modes{Whole: true}, func(m *MIG) {
				m.Instances = []Instance{{ID: 1, Profile: 19, Placement: Placement{5, 1}, Compute: compute}}
			},
			names("-mig-19-5"),
		},
		"half a static one where the GPU was to be advertised whole": {
			Modes{Whole: true}, func(m *MIG) { m.Instances = []Instance{{ID: 1, Profile: 9, Placement: Placement{4, 4}}} },
			nil,
		},
		"the mode is wrong for the whole GPU": {
			Modes{Whole: true}, func(m *MIG) { m.Mode = MIGMode{NeedsReset: true, Enabled: true} }, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := hopper()
			if c.mig != nil {
				c.mig(g.MIG)
			}
			assert.Equal(t, c.want, advertised(Layout{g.UUID: c.modes}.Of(g), g))
		})
	}
}

func TestMIGDevice_Placement_NameAndID(t *testing.T) {
	t.Parallel()
	g := hopper()
	profile, ok := g.MIG.Profile(20)
	require.True(t, ok)
	d := MIGDevice{GPU: g, Profile: profile, Placement: Placement{6, 1}}
	assert.Equal(t, DeviceName("gpu-3f2a9c1b-mig-20-6"), d.Name())
	assert.Equal(t, "GPU-3f2a9c1b-0/20/6", d.ID())
	assert.Equal(t, TypeMIG, d.Type())
	assert.Same(t, g, d.Parent())
	assert.Equal(t, 8, g.MIG.MemorySlices())
	_, ok = g.MIG.Profile(5)
	assert.False(t, ok)
}

func TestLayout_GPUs_AdvertisedAsConfigured(t *testing.T) {
	t.Parallel()
	g := hopper()
	assert.Equal(t, Modes{Whole: true}, Layout(nil).Of(g), "no layout: whole")
	assert.Equal(t, Modes{Whole: true}, Layout{"GPU-1": all}.Of(g), "not in the layout: whole")
	assert.Equal(t, all, Layout{g.UUID: all}.Of(g))
	assert.Equal(t, "node-1", Modes{Whole: true}.Pool("node-1", g))
	assert.Equal(t, "node-1/gpu-3f2a9c1b", all.Pool("node-1", g))
	assert.Equal(t, []DeviceName{"gpu-1"}, advertised(all, &GPU{ID: "1"}), "a GPU that reports nothing of MIG")
}
