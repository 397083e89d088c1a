package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/null"
)

// The devices of a mode outside the package are left out if the GPU cannot be allocated as a whole.
func TestModes_ExtraMode_AdvertisedWherePossible(t *testing.T) {
	t.Parallel()
	base := func() gpu.GPU {
		return gpu.GPU{UUID: "GPU-3f2a9c1b-0", ID: "3f2a9c1b", MIG: &gpu.MIG{Profiles: []gpu.MIGProfile{
			{ID: 19, Name: "1g.10gb", Placements: []gpu.Placement{{Start: 0, Size: 1}}},
		}}}
	}
	only := gpu.Modes{Extra: []gpu.Mode{null.Mode{}}}
	device := func(g *gpu.GPU) []gpu.Device { return []gpu.Device{null.Device{GPU: g}} }

	g := base()
	assert.Equal(t, device(&g), only.Devices(&g))
	assert.Equal(t, "node/gpu-3f2a9c1b", only.Pool("node", &g))
	assert.True(t, only.Equal(gpu.Modes{Extra: []gpu.Mode{null.Mode{}}}))
	assert.False(t, only.Equal(gpu.Modes{Static: true}))

	withheld := only
	withheld.Withheld = []gpu.Use{{Type: gpu.TypeMIG, Placement: gpu.Placement{Size: 1}}}
	assert.Empty(t, withheld.Devices(&g))

	both := gpu.Modes{Whole: true, Extra: only.Extra}
	assert.Len(t, both.Devices(&g), 2)
	assert.Equal(t, []gpu.Device{gpu.Whole{GPU: &g}}, both.WithoutCounters().Devices(&g))

	g.MIG.Instances = []gpu.Instance{{Profile: 19, Placement: gpu.Placement{Size: 1}}}
	assert.Empty(t, only.Devices(&g))
	fixed := base()
	fixed.MIG.Mode = gpu.MIGMode{Enabled: true, NeedsReset: true}
	assert.Empty(t, only.Devices(&fixed))
}

func TestLayout_WithModes_AddedToEveryGPU(t *testing.T) {
	t.Parallel()
	gpus := []gpu.GPU{{UUID: "GPU-1", ID: "1"}, {UUID: "GPU-2", ID: "2"}}
	before := gpu.Layout{"GPU-2": {TimeSlice: &gpu.Replicas{Count: 2}}}
	with := before.WithModes(gpus, null.Mode{})
	assert.Equal(t, []gpu.Device{gpu.Whole{GPU: &gpus[0]}, null.Device{GPU: &gpus[0]}}, with.Of(&gpus[0]).Devices(&gpus[0]))
	assert.Len(t, with.Of(&gpus[1]).Devices(&gpus[1]), 2)
	assert.Equal(t, gpu.Layout{"GPU-2": {TimeSlice: &gpu.Replicas{Count: 2}}}, before)
	assert.Len(t, gpu.Layout(nil).WithModes(gpus, null.Mode{}), 2)
}

// An unknown use excludes everything but a monitor.
func TestExcludes_AddedFamily_ExcludesAllOthers(t *testing.T) {
	t.Parallel()
	g := gpu.GPU{UUID: "GPU-3f2a9c1b-0", ID: "3f2a9c1b"}
	added := null.Device{GPU: &g}.Use(false)
	for _, other := range []gpu.Use{
		added, gpu.Whole{GPU: &g}.Use(false), gpu.TimeSliced{GPU: &g}.Use(true),
		gpu.MIGDevice{GPU: &g, Profile: &gpu.MIGProfile{}, Placement: gpu.Placement{Size: 1}}.Use(false),
	} {
		assert.True(t, gpu.Excludes(added, other), other.Type)
		assert.True(t, gpu.Excludes(other, added), other.Type)
	}
	assert.False(t, gpu.Excludes(added, gpu.Monitor{}.Use(false)))
}
