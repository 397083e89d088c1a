package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestUse_RecordsOfEarlierVersions_SameUses: they contain everything that exclusion requires.
func TestUse_RecordsOfEarlierVersions_SameUses(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]gpu.Use{
		"v1-whole.json":   {Type: gpu.TypeGPU, Device: "gpu-3f2a9c1b"},
		"v1-share.json":   {Type: gpu.TypeTimeSlice, Device: "gpu-3f2a9c1b-timeslice", Shared: true},
		"v1-mps.json":     {Type: gpu.TypeMPS, Device: "gpu-3f2a9c1b-mps", Shared: true},
		"v1-metrics.json": {Type: gpu.TypeGPU, Device: "gpu-3f2a9c1b"},
		"v1-profile.json": {Type: gpu.TypeGPU, Device: "gpu-3f2a9c1b"},
		"v1-full.json":    {Type: gpu.TypeMonitor, Device: "gpu-3f2a9c1b"}, // with admin access
		"v1-later.json":   {Type: gpu.TypeMonitor, Device: "gpu-3f2a9c1b"},
	} {
		raw, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		r, err := Decode(raw)
		require.NoError(t, err)
		assert.Equal(t, want, r.Results[0].Use(), name)
	}
}

func TestUse_MIGDevices_PlacementAndMedia(t *testing.T) {
	t.Parallel()
	r := Result{Type: gpu.TypeMIG, Device: "gpu-3f2a9c1b-mig-20-6", MIG: &MIG{Profile: 20, Name: "1g.10gb+me", Placement: gpu.Placement{Start: 6, Size: 1}}}
	want := gpu.Use{Type: gpu.TypeMIG, Device: "gpu-3f2a9c1b-mig-20-6", Placement: gpu.Placement{Start: 6, Size: 1}, MediaExtensions: true}
	assert.Equal(t, want, r.Use())
	r.ShareID, want.Shared = "share-1", true
	assert.Equal(t, want, r.Use())
	r.Admin = true
	assert.False(t, r.Use().Owns())
	r = Result{Type: gpu.TypeMIG, Device: "gpu-3f2a9c1b-mig-20-6"}
	assert.True(t, gpu.Excludes(r.Use(), want), "one that does not say where it is may be anywhere")
	newer := Result{GPUUUID: "GPU-3f2a9c1b"}
	assert.True(t, gpu.Excludes(newer.Use(), want), "all that is known of a record of a later schema")
}
