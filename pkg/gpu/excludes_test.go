package gpu

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestExcludes_EveryPair_AsListed names the pairs that may be on one GPU at the same time; all others exclude each other.
func TestExcludes_EveryPair_AsListed(t *testing.T) {
	t.Parallel()
	at := func(name DeviceName, start, size int, media, shared bool) Use {
		return Use{Type: TypeMIG, Device: name, Placement: Placement{start, size}, MediaExtensions: media, Shared: shared}
	}
	uses := map[string]Use{
		"monitor":      {Type: TypeMonitor, Device: "monitor"},
		"perfmon":      {Type: TypePerfmon, Device: "perfmon"},
		"gpu":          {Type: TypeGPU, Device: "gpu"},
		"gpu, share":   {Type: TypeGPU, Device: "gpu", Shared: true}, // no version records such a thing
		"timeslice":    {Type: TypeTimeSlice, Device: "timeslice", Shared: true},
		"timeslice 2":  {Type: TypeTimeSlice, Device: "timeslice 2", Shared: true},
		"no share":     {Type: TypeTimeSlice, Device: "timeslice"},
		"mps":          {Type: TypeMPS, Device: "mps", Shared: true},
		"mps 2":        {Type: TypeMPS, Device: "mps 2", Shared: true},
		"no MPS share": {Type: TypeMPS, Device: "mps"}, // of an API server that counts no shares
		"mps, sliced":  {Type: TypeMPS, Device: "timeslice", Shared: true},
		"low":          at("low", 0, 4, false, false),
		"high":         at("high", 4, 4, false, false),
		"one":          at("one", 6, 1, false, false),
		"one, share":   at("one", 6, 1, false, true),
		"me":           at("me", 0, 1, true, false),
		"me share":     at("me 2", 5, 1, true, true),
		"somewhere":    {Type: TypeMIG, Device: "somewhere"},
		"later":        {Type: "later", Device: "later"},
		"later, share": {Type: "later", Device: "later", Shared: true},
		"later, MIG":   {Type: "later", Device: "one", Placement: Placement{6, 1}, Shared: true},
		"no type":      {},
	}
	beside := map[string][]string{
		"timeslice": {"timeslice"}, "timeslice 2": {"timeslice 2"},
		"mps": {"mps"}, "mps 2": {"mps 2"}, "mps, sliced": {"mps, sliced"},
		"low":  {"high", "one", "one, share", "me share"},
		"high": {"low", "me"}, "one": {"low", "me", "me share"}, "one, share": {"low", "me", "me share", "one, share"},
		"later, share": {"later, share"}, "later, MIG": {"later, MIG"},
		"me": {"high", "one", "one, share"}, "me share": {"low", "one", "one, share", "me share"},
	}
	for a, x := range uses {
		for b, y := range uses {
			want := a != "monitor" && b != "monitor" && !slices.Contains(beside[a], b)
			if a == "perfmon" || b == "perfmon" {
				want = a == b
			}
			assert.Equal(t, want, Excludes(x, y), "%s and %s", a, b)
		}
	}
}

// TestDevices_EveryPair_PendingCleanupsAndWithheldAgree: the pending cleanup of a device, and a withheld use of it, keep back the same
// others.
func TestDevices_EveryPair_PendingCleanupsAndWithheldAgree(t *testing.T) {
	t.Parallel()
	g := full()
	modes := Modes{Whole: true, TimeSlice: &Replicas{Count: 2}, MPS: &MPSSharing{MPSSize: MPSSize{Replicas: 1}}, MIG: g.MIG.ProfileNames()}
	devices := modes.Devices(g)
	for _, held := range devices {
		use := next(held)
		modes.Withheld = []Use{use}
		kept := modes.Devices(g)
		for _, d := range devices {
			excluded := Excludes(use, next(d))
			assert.Equal(t, excluded, Excludes(next(d), use), "%s and %s", held.Name(), d.Name())
			assert.Equal(t, excluded, PendingCleanup{GPU: g.UUID, Uses: modes.Withheld}.Blocks(d), "%s and %s", held.Name(), d.Name())
			assert.Equal(t, excluded, !slices.Contains(kept, d), "%s and %s", held.Name(), d.Name())
		}
	}
}

func TestUse_EachFamily_AsNamed(t *testing.T) {
	t.Parallel()
	g := hopper()
	profile, _ := g.MIG.Profile(20)
	device := MIGDevice{GPU: g, Profile: profile, Placement: Placement{6, 1}}
	want := Use{Type: TypeMIG, Device: device.Name(), Placement: Placement{6, 1}, MediaExtensions: true}
	assert.Equal(t, want, device.Use(false))
	assert.Equal(t, want, next(device))
	want.Shared = true
	assert.Equal(t, want, device.Use(true))
	device.Replicas = 2
	assert.Equal(t, want, next(device))
	shared := TimeSliced{GPU: g, Replicas: 2}
	assert.Equal(t, Use{Type: TypeTimeSlice, Device: shared.Name(), Shared: true}, next(shared))
	mps := MPSShare{GPU: g, Size: MPSSize{Replicas: 1}}
	assert.Equal(t, Use{Type: TypeMPS, Device: "gpu-3f2a9c1b-mps", Shared: true}, next(mps), "also where there is one share")
	assert.Equal(t, Use{Type: TypeGPU, Device: "gpu-3f2a9c1b"}, next(Whole{GPU: g}))
	assert.Equal(t, Use{Type: TypeMonitor, Device: "monitor"}, next(Monitor{}))
}
