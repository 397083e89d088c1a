package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// selector matches a metric of Prism in a query; grouping matches a list of labels on which metrics are joined.
var (
	selector = regexp.MustCompile(`prism_[a-z_]+`)
	grouping = regexp.MustCompile(`(?:on|group_left) \(([a-z_, ]+)\)`)
)

func TestQueries_InDocs_UseMetricsAndLabelsThatExist(t *testing.T) {
	for _, query := range []string{joinQuery, dcgmJoin, dcgmMIGJoin} {
		var families []metrics.Family
		for _, name := range selector.FindAllString(query, -1) {
			at := slices.IndexFunc(metrics.Families(), func(f metrics.Family) bool { return f.Name == name })
			require.GreaterOrEqual(t, at, 0, "%s is no metric", name)
			families = append(families, metrics.Families()[at])
		}
		require.NotEmpty(t, families)
		for _, list := range grouping.FindAllStringSubmatch(query, -1) {
			for _, label := range strings.Split(list[1], ", ") {
				assert.True(t, slices.ContainsFunc(families, func(f metrics.Family) bool { return slices.Contains(f.Labels, label) }), "no metric has %s", label)
			}
		}
	}
}

func TestRecipe_CSV_IsOneThatThePageTakes(t *testing.T) {
	page, err := metricsPage("")
	require.NoError(t, err)
	_, rest, found := strings.Cut(page, "```csv\n")
	require.True(t, found)
	csv, _, _ := strings.Cut(rest, "```")
	chosen, problems, err := metrics.ParseCSV([]byte(csv))
	require.NoError(t, err)
	assert.Empty(t, problems)
	assert.Len(t, chosen.Names(), 10)
	for _, f := range chosen.Fields() {
		row := metrics.Table[f]
		assert.Equal(t, metrics.SourceGPM, row.Source, row.GPU)
		assert.False(t, row.On(metrics.Ampere), "NVML has %s before Hopper", row.GPU)
	}
}
