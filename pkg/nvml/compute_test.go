package nvml

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	plainKind = nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE
	otherKind = nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE_NVL
)

// TestCreateComputeInstance_Kinds_MostMultiprocessors: memory slices do not show which kind fills the GPU instance of 128 multiprocessors.
func TestCreateComputeInstance_Kinds_MostMultiprocessors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kinds map[int]uint32
		want  int
		asks  int
	}{
		"memory slices decide":              {map[int]uint32{plainKind: 128, otherKind: 128, 0: 16}, plainKind, 1},
		"another of as many compute slices": {map[int]uint32{plainKind: 112, otherKind: 128, 0: 16}, otherKind, 9},
		"none has all":                      {map[int]uint32{plainKind: 120, otherKind: 112}, plainKind, 9},
		"only one of another size":          {map[int]uint32{0: 128}, 0, 2},
		"the driver reports none":           {map[int]uint32{plainKind: 0, 0: 0}, plainKind, 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, g := seeing(t)
			g.kinds = c.kinds
			require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true))
			gi, err := s.CreateInstance(t.Context(), firstGPU, 0, gpu.Placement{Size: 8})
			require.NoError(t, err)
			_, err = s.CreateComputeInstance(t.Context(), firstGPU, gi)
			require.NoError(t, err)
			assert.Equal(t, c.want, g.instances[0].kind)
			assert.Equal(t, c.asks, g.driver.count("nvmlGpuInstanceGetComputeInstanceProfileInfo"))
			i, err := s.Instance(t.Context(), firstGPU, gi, "MIG-3")
			require.NoError(t, err)
			assert.True(t, i.Filled(), "what has all that can be had is no part")
		})
	}
}

func TestCreateComputeInstance_NoKind_Unsupported(t *testing.T) {
	t.Parallel()
	s, g := seeing(t)
	g.kinds = map[int]uint32{}
	require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true))
	gi, err := s.CreateInstance(t.Context(), firstGPU, 0, gpu.Placement{Size: 8})
	require.NoError(t, err)
	_, err = s.CreateComputeInstance(t.Context(), firstGPU, gi)
	var unsupported *gpu.UnsupportedError
	require.ErrorAs(t, err, &unsupported)
	g.kinds = nil
	g.answer(nvml.ERROR_UNKNOWN, "nvmlGpuInstanceGetComputeInstanceProfileInfo")
	_, err = s.CreateComputeInstance(t.Context(), firstGPU, gi)
	require.ErrorContains(t, err, "nvmlGpuInstanceGetComputeInstanceProfileInfo on GPU 0")
}

// TestInstance_FewerMultiprocessors_IsPart, although it has as many compute slices, and the same name, as a compute instance that fills the
// GPU instance.
func TestInstance_FewerMultiprocessors_IsPart(t *testing.T) {
	t.Parallel()
	s, g := seeing(t)
	require.NoError(t, s.SetMIGMode(t.Context(), firstGPU, true))
	gi, err := s.CreateInstance(t.Context(), firstGPU, 0, gpu.Placement{Size: 8})
	require.NoError(t, err)
	_, err = s.CreateComputeInstance(t.Context(), firstGPU, gi)
	require.NoError(t, err)
	want := gpu.Instance{ID: gi, Placement: gpu.Placement{Size: 8}, Compute: []gpu.ComputeInstance{{Slices: 7, UUID: "MIG-3"}}}
	for part, kinds := range map[bool]map[int]uint32{false: {plainKind: 112}, true: {plainKind: 112, otherKind: 128}} {
		g.kinds, want.Compute[0].Part = kinds, part
		i, err := s.Instance(t.Context(), firstGPU, gi, "MIG-3")
		require.NoError(t, err)
		assert.Equal(t, &want, i)
		assert.Equal(t, []gpu.Instance{want}, seen(t, s))
	}
	g.answer(nvml.ERROR_UNKNOWN, "nvmlDeviceGetAttributes_v2")
	_, err = s.Instance(t.Context(), firstGPU, gi, "MIG-3")
	require.ErrorContains(t, err, "nvmlDeviceGetAttributes_v2 on GPU 0")
}
