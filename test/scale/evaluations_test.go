package scale

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFilter_CELEvaluations_WithinBudget guards what a pending pod costs the scheduler on one node, by a count that no machine's speed
// changes.
func TestFilter_CELEvaluations_WithinBudget(t *testing.T) {
	t.Parallel()
	n, err := Simulated(t.Context())
	require.NoError(t, err)
	for _, c := range []struct {
		layout string
		ask    Ask
		state  State
		most   int
	}{
		{"prism-whole", AskGPU, Empty, 1},
		{"prism-whole", AskGPU, FullWhole, 8},
		{"prism-mig", AskProfileClass, FullWhole, 208},
		{"prism-mig", AskProfileClass, FullProfile, 160},
	} {
		l, err := LayoutByName(c.layout)
		require.NoError(t, err)
		got, err := Evaluations(t.Context(), &l, n, c.ask, c.state)
		require.NoError(t, err)
		assert.LessOrEqual(t, got, c.most, "%s, %s, %s", c.layout, c.ask, c.state)
		t.Logf("%s, %s, %s: %d", c.layout, c.ask, c.state, got)
	}
}

// TestUtilization_KnownLayouts_AsClusterAutoscalerReadsThem checks the model of Cluster Autoscaler's function on the layouts of NVIDIA's driver,
// whose utilization follows from what that function documents.
func TestUtilization_KnownLayouts_AsClusterAutoscalerReadsThem(t *testing.T) {
	t.Parallel()
	rows, err := Utilizations(t.Context(), Layouts())
	require.NoError(t, err)
	got := map[string]float64{}
	for _, row := range rows {
		got[row.Layout+", "+row.What] = row.Value
		t.Logf("%s, %s: %.3f", row.Layout, row.What, row.Value)
	}
	for what, want := range map[string]float64{
		"nvidia-whole, 8 of 8 GPUs": 1, "nvidia-whole, 7 of 8 GPUs": 0.875, "nvidia-whole, 1 of 8 GPUs": 0.125,
		"nvidia-mig, 8 of 8 GPUs": 1, "nvidia-mig, 7 of 8 GPUs": 0.875, "nvidia-mig, one MIG device of 56": 0.125,
		"nvidia-mig, 28 MIG devices of 56": 0.5, "nvidia-mig, 56 MIG devices of 56": 1,
		"prism-mig, 8 of 8 GPUs": 1, "prism-mig, 56 MIG devices of 56": 1,
	} {
		assert.InDelta(t, want, got[what], 1e-9, what)
	}
}
