package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPendingCleanup_LeftUses_BlockWhatTheyExclude(t *testing.T) {
	t.Parallel()
	g := hopper()
	slices := []DeviceName{"-mig-19-0", "-mig-19-5", "-mig-19-6", "-mig-9-0", "-mig-9-4", "-mig-20-0", "-mig-20-6"}
	for name, c := range map[string]struct {
		pending PendingCleanup
		want    []DeviceName
	}{
		"the GPU":                     {PendingCleanup{GPU: g.UUID}, append([]DeviceName{""}, slices...)},
		"the GPU, without uses":       {PendingCleanup{GPU: g.UUID, Uses: []Use{}}, append([]DeviceName{""}, slices...)},
		"another GPU":                 {PendingCleanup{GPU: "GPU-1"}, nil},
		"a MIG device of another GPU": {PendingCleanup{GPU: "GPU-1", Uses: slicesAt(Placement{6, 1})}, nil},
		"a MIG device":                {PendingCleanup{GPU: g.UUID, Uses: slicesAt(Placement{6, 1})}, []DeviceName{"", "-mig-19-6", "-mig-9-4", "-mig-20-6"}},
		"a large one":                 {PendingCleanup{GPU: g.UUID, Uses: slicesAt(Placement{4, 4})}, []DeviceName{"", "-mig-19-5", "-mig-19-6", "-mig-9-4", "-mig-20-6"}},
		"two MIG devices":             {PendingCleanup{GPU: g.UUID, Uses: slicesAt(Placement{5, 1}, Placement{0, 1})}, []DeviceName{"", "-mig-19-0", "-mig-19-5", "-mig-9-0", "-mig-9-4", "-mig-20-0"}},
		"where nothing is":            {PendingCleanup{GPU: g.UUID, Uses: slicesAt(Placement{8, 1})}, []DeviceName{""}},
		"the media extensions":        {PendingCleanup{GPU: g.UUID, Uses: []Use{{Type: TypeMIG, Placement: Placement{0, 1}, MediaExtensions: true}}}, []DeviceName{"", "-mig-19-0", "-mig-9-0", "-mig-20-0", "-mig-20-6"}},
		"an unknown type":             {PendingCleanup{GPU: g.UUID, Uses: []Use{{Type: "later"}}}, append([]DeviceName{""}, slices...)},
		"the counters":                {PendingCleanup{GPU: g.UUID, Uses: []Use{{Type: TypePerfmon}}}, nil},
		"a monitor device":            {PendingCleanup{GPU: g.UUID, Uses: []Use{{Type: TypeMonitor}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []DeviceName
			for _, d := range all.Devices(g) {
				if c.pending.Blocks(d) {
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

// A time-sliced share is blocked by whatever was left on the GPU, except by another share.
func TestPendingCleanup_TimeSlicedDevice_BlockedUnlessShared(t *testing.T) {
	t.Parallel()
	g := hopper()
	shared := TimeSliced{GPU: g, Replicas: 2}
	assert.True(t, PendingCleanup{GPU: g.UUID}.Blocks(shared))
	assert.True(t, PendingCleanup{GPU: g.UUID, Uses: slicesAt(Placement{6, 1})}.Blocks(shared))
	assert.False(t, PendingCleanup{GPU: "GPU-1"}.Blocks(shared))
	share := PendingCleanup{GPU: g.UUID, Uses: []Use{shared.Use(true)}}
	assert.False(t, share.Blocks(shared))
	assert.True(t, share.Blocks(Whole{GPU: g}))
}
