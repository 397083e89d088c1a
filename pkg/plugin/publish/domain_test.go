package publish_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// layoutsOf are layouts that advertise the GPUs of a board in every mode.
func layoutsOf(t *testing.T, board string) (*gpu.Node, []gpu.Layout) {
	t.Helper()
	n := node(t, board, 2)
	modes := gpu.Modes{
		Whole: true, TimeSlice: &gpu.Replicas{Count: 2, ShareName: "gpu-shared"}, MPS: mpsOf(2, 1),
	}
	b, err := model.BoardByID(board)
	require.NoError(t, err)
	if b.MIG.Capable() {
		n = migNode(t, board, 2)
		modes.MIG = n.GPUs[0].MIG.ProfileNames()
	}
	layout := gpu.Layout{n.GPUs[0].UUID: modes, n.GPUs[1].UUID: modes}
	return n, []gpu.Layout{nil, layout, layout.Disjoint()}
}

// TestResources_AllBoards_OnlySelectingCapacitiesQualified: k8s.io/dynamic-resource-allocation 0.38 refuses names in the driver's own
// domain by default, and if a device has a name with and without the domain, CEL sees only one of them. So a name contains the domain only
// if it selects MIG devices, and no name is there twice.
func TestResources_AllBoards_OnlySelectingCapacitiesQualified(t *testing.T) {
	t.Parallel()
	qualified := 0
	check := func(driver string, d *resourceapi.Device) {
		for name := range d.Attributes {
			assert.False(t, strings.HasPrefix(string(name), driver+"/"), "attribute %s of %s", name, d.Name)
		}
		for name := range d.Capacity {
			own, ok := strings.CutPrefix(string(name), driver+"/")
			if !ok {
				continue
			}
			qualified++
			assert.Equal(t, "mig", *d.Attributes[publish.AttrType].StringValue, d.Name)
			assert.Contains(t, []string{publish.CapMIGMemory, publish.ProfileCapacity(*d.Attributes[publish.AttrProfile].StringValue)}, own, d.Name)
			assert.NotContains(t, d.Capacity, resourceapi.QualifiedName(own), d.Name)
		}
	}
	each := func(driver string, n *gpu.Node, layout gpu.Layout) {
		pools := publish.Resources(publish.Options{DriverName: driver, NodeName: nodeName, Layout: layout, Monitor: true}, n).Pools
		for _, pool := range pools {
			for i := range pool.Slices {
				for j := range pool.Slices[i].Devices {
					check(driver, &pool.Slices[i].Devices[j])
				}
			}
		}
	}
	for _, driver := range []string{driverName, "gpu.nvidia.com"} {
		for _, board := range model.BoardIDs() {
			n, layouts := layoutsOf(t, board)
			for _, layout := range layouts {
				each(driver, n, layout)
			}
		}
		n, layout := sharedMIGDevice(t)
		each(driver, n, layout)
	}
	assert.Positive(t, qualified)
}
