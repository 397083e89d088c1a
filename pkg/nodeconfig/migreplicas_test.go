package nodeconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

// TestResolve_StrategySingle_SharesMIGDevices: with strategy single the replicas of nvidia.com/gpu are replicas of the GPU's MIG devices if
// it has some, and else of the GPU.
func TestResolve_StrategySingle_SharesMIGDevices(t *testing.T) {
	t.Parallel()
	const file = "version: v1\nflags: {migStrategy: single}\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
	config, warnings, err := nodeconfig.Parse([]byte(file), "it")
	require.NoError(t, err)
	assert.Empty(t, warnings)
	node := gpus()
	node[0].MIG.Profiles[0].Slices = 1
	node[0].MIG.Profiles[0].Placements = []gpu.Placement{{Start: 0, Size: 1}, {Start: 1, Size: 1}}
	node[0].MIG.Instances = []gpu.Instance{{
		ID: 7, Profile: 0, Placement: gpu.Placement{Start: 0, Size: 1}, Compute: []gpu.ComputeInstance{{UUID: "MIG-1", Slices: 1}},
	}}
	layout, refused, err := nodeconfig.Resolve(config, &gpu.Node{GPUs: node})
	require.NoError(t, err)
	assert.Empty(t, refused)
	type device struct {
		Type     gpu.DeviceType
		Replicas int
	}
	devices := func(i int) (found []device) {
		g := &node[i]
		for _, d := range layout.Of(g).Devices(g) {
			switch d := d.(type) {
			case gpu.MIGDevice:
				found = append(found, device{d.Type(), d.Replicas})
			case gpu.TimeSliced:
				found = append(found, device{d.Type(), d.Replicas})
			case gpu.Monitor:
			case gpu.Whole:
				found = append(found, device{Type: d.Type()})
			}
		}
		return found
	}
	assert.Equal(t, []device{{gpu.TypeMIG, 4}}, devices(0), "the GPU that an administrator has partitioned")
	assert.Equal(t, []device{{gpu.TypeTimeSlice, 4}}, devices(1))
	assert.Equal(t, "nvidia.com/gpu", layout[h0].MIGResources["1g.10gb"])
	assert.False(t, layout[h0].OneShare)
}

func TestResolve_ReplicasOfAllProfiles_OwnEntryWins(t *testing.T) {
	t.Parallel()
	c := config(t, `[{select: {indices: [0]}, mig: {replicas: {"*": 3, 2g.20gb: 5, 3g.40gb: 1}, resourceNames: {"*": example.com/part}}}]`)
	require.NoError(t, c.Validate())
	layout, _, err := nodeconfig.Resolve(c, &gpu.Node{GPUs: gpus()})
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(map[string]int{"1g.10gb": 3, "2g.20gb": 5}, layout[h0].MIGReplicas))
	assert.Equal(t, map[string]string{"1g.10gb": "example.com/part"}, layout[h0].MIGResources)
	assert.Equal(t, "*", v1alpha1.AllProfiles)
}
