package scale

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
)

// TestUtilization_EveryLayout_AsClusterAutoscalerReadsIt: what Cluster Autoscaler makes of a node decides whether it drains it.
func TestUtilization_EveryLayout_AsClusterAutoscalerReadsIt(t *testing.T) {
	t.Parallel()
	rows, err := Utilizations(t.Context(), Layouts())
	require.NoError(t, err)
	got := map[string]map[string]float64{}
	for _, row := range rows {
		if got[row.Layout] == nil {
			got[row.Layout] = map[string]float64{}
		}
		got[row.Layout][row.What] = row.Value
	}
	whole := map[string]float64{"8 of 8 GPUs": 1, "7 of 8 GPUs": 0.875, "1 of 8 GPUs": 0.125}
	assert.Equal(t, map[string]map[string]float64{
		"prism-whole":  whole,
		"nvidia-whole": whole,
		// The pool of the monitor has no counters and no device that is allocated: admin access does not count. The fullest pool does.
		"prism-whole-monitor": whole,
		// A pool for each GPU, and counters of memory slices of which each is one: the GPU with the first MIG device is a full pool.
		"prism-mig": {
			"8 of 8 GPUs": 1, "7 of 8 GPUs": 1, "1 of 8 GPUs": 1,
			"one MIG device of 56": 1, "28 MIG devices of 56": 1, "56 MIG devices of 56": 1,
		},
		// One pool with a counter set for each GPU, whose mean counts.
		"nvidia-mig": {
			"8 of 8 GPUs": 1, "7 of 8 GPUs": 0.875, "1 of 8 GPUs": 0.125,
			"one MIG device of 56": 0.125, "28 MIG devices of 56": 0.5, "56 MIG devices of 56": 1,
		},
	}, got)
}

// TestUtilization_AdminAccess_DoesNotCount: a pod that watches all GPUs does not keep Cluster Autoscaler from draining the node.
func TestUtilization_AdminAccess_DoesNotCount(t *testing.T) {
	t.Parallel()
	n, err := Simulated(t.Context())
	require.NoError(t, err)
	l, err := LayoutByName("prism-whole")
	require.NoError(t, err)
	node := newNode(&l, "node", n)
	_, err = node.fill(t.Context(), l.Asks[AskGPU], 1)
	require.NoError(t, err)
	admin, watch := true, request(l.Driver)
	watch.AdminAccess, watch.AllocationMode, watch.Count = &admin, resourceapi.DeviceAllocationModeAll, 0
	seen, _, err := node.allocate(t.Context(), watch)
	require.NoError(t, err)
	require.Len(t, seen, GPUs)
	node.take(seen)
	assert.InDelta(t, 0.125, Utilization(node.slices, node.taken), 1e-9)
}
