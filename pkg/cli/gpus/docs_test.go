package gpus

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/cli/explain"
)

// TestDocs_Examples_AreGoldenFiles: docs show what the commands print.
func TestDocs_Examples_AreGoldenFiles(t *testing.T) {
	t.Parallel()
	for page, names := range map[string][]string{
		"README.md": {"map", "explain-mig-in-use"}, "docs/see-gpus.md": {"map-all", "top"}, "docs/why-pending.md": {"explain-mig-in-use"},
	} {
		text, err := os.ReadFile("../../../" + page)
		require.NoError(t, err)
		for _, name := range names {
			want, err := os.ReadFile("testdata/" + name + ".txt")
			require.NoError(t, err)
			example := string(want)
			if name == "top" {
				_, example, _ = strings.Cut(example, "$ top gpus\n")
				example, _, _ = strings.Cut(example, "$")
			}
			assert.Contains(t, string(text), example, "%s: %s", page, name)
		}
	}
}

// TestDocs_Defragment_AsPrinted: its examples have fewer lines than the golden files.
func TestDocs_Defragment_AsPrinted(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/defragment.md")
	require.NoError(t, err)
	plan, free := planned(), left()
	plan.Moves, plan.Notes = plan.Moves[:1], nil
	free.Rooms, free.Cordoned = free.Rooms[:3], nil
	assert.Contains(t, string(text), planText(wide80, plan)+"\n# 1. No new claim gets a device that overlaps "+plan.Target.Device+".\n")
	assert.Contains(t, string(text), capacityText(wide80, free, false, false))
}

func TestDocs_Causes_AllInTheTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/why-pending.md")
	require.NoError(t, err)
	for _, cause := range []explain.Cause{
		explain.ClassMissing, explain.ExpressionError, explain.NoDevices, explain.PoolIncomplete, explain.Selector, explain.Capacity, explain.Count,
		explain.Constraint, explain.Requests, explain.Taint, explain.InUse, explain.SearchTooLong, explain.Fits, explain.NodeTaint, explain.NodeAffinity,
		explain.NodeUnschedulable, explain.NodeResources,
	} {
		assert.Contains(t, string(text), "`"+string(cause)+"`")
	}
}
