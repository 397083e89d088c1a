package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDebtBlocks(t *testing.T) {
	t.Parallel()
	g := hopper()
	slices := []DeviceName{"-mig-19-0", "-mig-19-5", "-mig-19-6", "-mig-9-0", "-mig-9-4", "-mig-20-0", "-mig-20-6"}
	for name, c := range map[string]struct {
		debt Debt
		want []DeviceName
	}{
		"the GPU":                {Debt{GPU: g.UUID}, append([]DeviceName{""}, slices...)},
		"the GPU, no slice":      {Debt{GPU: g.UUID, Uses: []Use{}}, append([]DeviceName{""}, slices...)},
		"another GPU":            {Debt{GPU: "GPU-1"}, nil},
		"a slice of another GPU": {Debt{GPU: "GPU-1", Uses: slicesAt(Placement{6, 1})}, nil},
		"a slice":                {Debt{GPU: g.UUID, Uses: slicesAt(Placement{6, 1})}, []DeviceName{"", "-mig-19-6", "-mig-9-4", "-mig-20-6"}},
		"a large one":            {Debt{GPU: g.UUID, Uses: slicesAt(Placement{4, 4})}, []DeviceName{"", "-mig-19-5", "-mig-19-6", "-mig-9-4", "-mig-20-6"}},
		"two slices":             {Debt{GPU: g.UUID, Uses: slicesAt(Placement{5, 1}, Placement{0, 1})}, []DeviceName{"", "-mig-19-0", "-mig-19-5", "-mig-9-0", "-mig-9-4", "-mig-20-0"}},
		"where nothing is":       {Debt{GPU: g.UUID, Uses: slicesAt(Placement{8, 1})}, []DeviceName{""}},
		"the media extensions":   {Debt{GPU: g.UUID, Uses: []Use{{Type: TypeMIG, Placement: Placement{0, 1}, MediaExtensions: true}}}, []DeviceName{"", "-mig-19-0", "-mig-9-0", "-mig-20-0", "-mig-20-6"}},
		"nobody knows what":      {Debt{GPU: g.UUID, Uses: []Use{{Type: "later"}}}, append([]DeviceName{""}, slices...)},
		"a look":                 {Debt{GPU: g.UUID, Uses: []Use{{Type: TypeMonitor}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []DeviceName
			for _, d := range all.Devices(g) {
				if c.debt.Blocks(d) {
					got = append(got, d.Name()[len("gpu-3f2a9c1b"):])
				}
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func slicesAt(placements ...Placement) (uses []Use) {
	for _, p := range placements {
		uses = append(uses, Use{Type: TypeMIG, Placement: p})
	}
	return uses
}

// A time-sliced share meets whatever was left on the GPU, but for another share.
func TestDebtBlocksTurns(t *testing.T) {
	t.Parallel()
	g := hopper()
	turns := TimeSliced{GPU: g, Replicas: 2}
	assert.True(t, Debt{GPU: g.UUID}.Blocks(turns))
	assert.True(t, Debt{GPU: g.UUID, Uses: slicesAt(Placement{6, 1})}.Blocks(turns))
	assert.False(t, Debt{GPU: "GPU-1"}.Blocks(turns))
	share := Debt{GPU: g.UUID, Uses: []Use{turns.Use(true)}}
	assert.False(t, share.Blocks(turns))
	assert.True(t, share.Blocks(Whole{GPU: g}))
}
