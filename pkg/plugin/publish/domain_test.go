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
	modes.MPS = nil
	return n, []gpu.Layout{nil, layout, layout.Disjoint(), {n.GPUs[0].UUID: modes, n.GPUs[1].UUID: modes}}
}

// TestResources_AllBoards_OnlySelectingCapacitiesQualified: k8s.io/dynamic-resource-allocation 0.38 refuses names in the driver's own
// domain by default, and if a device has a name with and without the domain, CEL sees only one of them. So a name contains the domain only
// if it selects MIG devices, and no name is there twice.
func TestResources_AllBoards_OnlySelectingCapacitiesQualified(t *testing.T) {
	t.Parallel()
	qualified := 0
	check := func(driver string, n *gpu.Node, layout gpu.Layout) {
		for _, d := range devicesIn(published(n, publish.Options{DriverName: driver, NodeName: nodeName, Layout: layout, Additional: gpu.Additional{Monitor: true, Perfmon: true}})) {
			for name := range d.Attributes {
				assert.False(t, strings.HasPrefix(string(name), driver+"/"), "attribute %s of %s", name, d.Name)
			}
			var own []string
			for name := range d.Capacity {
				if capacity, ok := strings.CutPrefix(string(name), driver+"/"); ok {
					own = append(own, capacity)
					assert.NotContains(t, d.Capacity, resourceapi.QualifiedName(capacity), d.Name)
				}
			}
			qualified += len(own)
			if *d.Attributes[publish.AttrType].StringValue != "mig" {
				assert.Empty(t, own, d.Name)
				continue
			}
			assert.ElementsMatch(t, []string{publish.CapMIGMemory, publish.ProfileCapacity(*d.Attributes[publish.AttrProfile].StringValue)}, own, d.Name)
			assert.Equal(t, d.Capacity[publish.CapMemory].Value, d.Capacity[resourceapi.QualifiedName(driver+"/"+publish.CapMIGMemory)].Value, d.Name)
		}
	}
	for _, driver := range []string{driverName, "gpu.nvidia.com"} {
		for _, board := range model.BoardIDs() {
			n, layouts := layoutsOf(t, board)
			for _, layout := range layouts {
				check(driver, n, layout)
			}
		}
		n, layout := sharedMIGDevice(t)
		check(driver, n, layout)
	}
	assert.Positive(t, qualified)
}
