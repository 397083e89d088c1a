package helm

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// counted are the chart's queries that count events, by their location.
func counted(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, group := range rules(t).Groups {
		for _, rule := range group.Rules {
			if strings.Contains(rule.Expr, "increase(") {
				found[rule.Alert+rule.Record] = rule.Expr
			}
		}
	}
	for _, name := range []string{"cluster", "gpu"} {
		for _, panel := range panels(t, name) {
			for _, target := range panel.Targets {
				if strings.Contains(target.Expr, "increase(") {
					found[name+"/"+panel.Title+"/"+target.RefID] = target.Expr
				}
			}
		}
	}
	return found
}

// wholeCount is the number of counted events: exact from the first sample to the last one, and rounded if a counter restarted. increase
// extrapolates: 9 errors became 9.652.
var wholeCount = regexp.MustCompile(`max_over_time\((prism_\w+\{[^}]*}\[1h])\) - min_over_time\((prism_\w+\{[^}]*}\[1h])\) and resets\((prism_\w+\{[^}]*}\[1h])\) == 0 or ` +
	`round\(increase\((prism_\w+\{[^}]*}\[1h])\)\)`)

// anyEvent matches the condition of an alert, which shows no number.
var anyEvent = regexp.MustCompile(`^increase\(prism_\w+\[\d+m\]\) > 0$`)

// shownCounts are the queries of dashboards in the form of wholeCount, by their location, with the metric that they count.
func shownCounts(t *testing.T) (queries, of map[string]string) {
	t.Helper()
	queries, of = counted(t), map[string]string{}
	for at, query := range queries {
		if anyEvent.MatchString(query) {
			delete(queries, at)
			continue
		}
		parts := wholeCount.FindStringSubmatch(query)
		require.NotNil(t, parts, "%s: %s", at, query)
		for _, part := range parts[2:] {
			assert.Equal(t, parts[1], part, at)
		}
		of[at], _, _ = strings.Cut(parts[1], "{")
	}
	return queries, of
}

// TestChartQueries_EventsCounted_WholeNumbers: a query that shows a number of events returns an integer; an alert only tests whether there
// were any.
func TestChartQueries_EventsCounted_WholeNumbers(t *testing.T) {
	t.Parallel()
	queries, _ := shownCounts(t)
	assert.Len(t, queries, 4)
}

// variable is a variable of a dashboard in a selector.
var variable = regexp.MustCompile(`"\$\w+"`)

// TestChartQueries_EventsCounted_PromtoolCountsTheSame: young series, old ones, and counters that restarted.
func TestChartQueries_EventsCounted_PromtoolCountsTheSame(t *testing.T) {
	program := promtool(t)
	if program == "" {
		t.Skip("no promtool in the cache: build it with `bin/localcluster build prometheus`")
	}
	queries, of := shownCounts(t)
	var tests []any
	for at, query := range queries {
		query = variable.ReplaceAllString(query, `".*"`)
		labels := `{node="n0"}`
		if !strings.HasPrefix(query, "sum by (node)") {
			query, labels = "sum("+query+")", "{}"
		}
		for _, c := range []struct {
			values, end string
			want        int
		}{{"0x3 9x3", "7m", 9}, {"0x40 1x19", "60m", 1}, {"5x70", "70m", 0}, {"0 3 7 1 1", "4m", 8}} {
			tests = append(tests, map[string]any{
				"interval": "1m", "input_series": []any{map[string]any{"series": of[at] + `{node="n0",gpu_uuid="GPU-1",xid="79"}`, "values": c.values}},
				"promql_expr_test": []any{map[string]any{
					"expr": query, "eval_time": c.end, "exp_samples": []any{map[string]any{"labels": labels, "value": c.want}},
				}},
			})
		}
	}
	text, err := yaml.Marshal(map[string]any{"tests": tests})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "counts.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, err := exec.CommandContext(t.Context(), program, "test", "rules", file).CombinedOutput()
	require.NoError(t, err, string(out))
}
