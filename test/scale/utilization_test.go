package scale

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
)

// Cluster Autoscaler drains nodes with a low utilization.
func TestUtilization_EveryLayout_AsInClusterAutoscaler(t *testing.T) {
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
		// The monitor's pool publishes no counters and no device in it counts as allocated, because admin access does not count. The
		// fullest pool counts.
		"prism-whole-monitor": whole,
		// One pool per GPU, and one counter per memory slice: the GPU with the first MIG device counts as a full pool.
		"prism-mig": {
			"8 of 8 GPUs": 1, "7 of 8 GPUs": 1, "1 of 8 GPUs": 1,
			"one MIG device of 56": 1, "28 MIG devices of 56": 1, "56 MIG devices of 56": 1,
		},
		// One pool with one counter set per GPU: the mean counts.
		"nvidia-mig": {
			"8 of 8 GPUs": 1, "7 of 8 GPUs": 0.875, "1 of 8 GPUs": 0.125,
			"one MIG device of 56": 0.125, "28 MIG devices of 56": 0.5, "56 MIG devices of 56": 1,
		},
	}, got)
}

// A monitoring pod does not keep Cluster Autoscaler from draining the node.
func TestUtilization_AdminAccess_NotCounted(t *testing.T) {
	t.Parallel()
	n, err := Simulated(t.Context())
	require.NoError(t, err)
	l, err := LayoutByName("prism-whole")
	require.NoError(t, err)
	node := newNode(&l, "node", n)
	_, err = node.fill(t.Context(), l.Requests[RequestGPU], 1)
	require.NoError(t, err)
	admin, watch := true, request(l.Driver)
	watch.AdminAccess, watch.AllocationMode, watch.Count = &admin, resourceapi.DeviceAllocationModeAll, 0
	seen, _, err := node.allocate(t.Context(), watch)
	require.NoError(t, err)
	require.Len(t, seen, GPUs)
	node.take(seen)
	assert.InDelta(t, 0.125, Utilization(node.slices, node.taken), 1e-9)
}
