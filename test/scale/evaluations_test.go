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
		{"prism-mig", AskProfileClass, FullWhole, 216},
		{"prism-mig", AskProfileClass, FullProfile, 216},
	} {
		l, err := LayoutByName(c.layout)
		require.NoError(t, err)
		got, err := Evaluations(t.Context(), &l, n, c.ask, c.state)
		require.NoError(t, err)
		assert.LessOrEqual(t, got, c.most, "%s, %s, %s", c.layout, c.ask, c.state)
		t.Logf("%s, %s, %s: %d", c.layout, c.ask, c.state, got)
	}
}

// TestUtilization_AsClusterAutoscalerReadsIt: a node whose GPUs are allocated may not look idle.
func TestUtilization_AsClusterAutoscalerReadsIt(t *testing.T) {
	t.Parallel()
	rows, err := Utilizations(t.Context(), Layouts())
	require.NoError(t, err)
	for _, row := range rows {
		t.Logf("%s, %s: %.3f", row.Layout, row.What, row.Value)
	}
}
