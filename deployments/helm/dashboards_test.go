package helm

import (
	"encoding/json"
	"fmt"
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

// panel is a panel of one of the chart's dashboards.
type panel struct {
	Title   string
	Targets []struct{ RefID, Expr string }
}

// panels are the panels of a dashboard.
func panels(t *testing.T, name string) []panel {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("prism/files", "dashboard-"+name+".json"))
	require.NoError(t, err)
	var shown struct{ Panels []panel }
	require.NoError(t, json.Unmarshal(text, &shown))
	return shown.Panels
}

// evaluation is a query for promtool and its result.
type evaluation struct {
	Expr    string   `json:"expr"`
	At      string   `json:"eval_time"`   //nolint:tagliatelle // Prometheus's
	Samples []sample `json:"exp_samples"` //nolint:tagliatelle // Prometheus's
}

// counts expects a number of series from a query.
func counts(query string, n int) evaluation {
	e := evaluation{Expr: "count(" + query + ")", At: "1m"}
	if n > 0 {
		e.Samples = []sample{{"{}", float64(n)}}
	}
	return e
}

// answers expects that at least one of the queries returns series, or that none does.
func answers(some bool, queries ...string) evaluation {
	e := evaluation{Expr: "(count(" + strings.Join(queries, ") or count(") + ")) > bool 0", At: "1m"}
	if some {
		e.Samples = []sample{{"{}", 1}}
	}
	return e
}

// TestChartQueries_ExampleNodes_Answered evaluates the queries of the dashboards, the HPA and Grafana's dashboard 12239 with the exporter's
// default sets.
func TestChartQueries_ExampleNodes_Answered(t *testing.T) {
	program := promtool(t)
	if program == "" {
		t.Skip("no promtool in the cache: build it with `bin/localcluster build prometheus`")
	}
	var inputs []input
	queries := adapterQueries(t)
	for i := range boards {
		inputs = append(inputs, boards[i].scraped(t)...)
		queries = append(append(queries, boards[i].dashboardQueries(t)...), boards[i].dcgmQueries()...)
	}
	recorded, err := filepath.Abs("prism/files/rules.yaml")
	require.NoError(t, err)
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{recorded}, "evaluation_interval": "1m", "tests": []any{
		map[string]any{"interval": "1m", "input_series": inputs, "promql_expr_test": queries},
	}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "queries.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, err := exec.CommandContext(t.Context(), program, "test", "rules", file).CombinedOutput()
	require.NoError(t, err, string(out))
}

// withoutData are the panels that docs/monitoring.md names as empty on the GPUs of the board. On Hopper no panel is empty.
func (b *board) withoutData(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, "monitoring.md"))
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(b.name) + ` \| (.*) \|$`).FindStringSubmatch(string(text))
	if b.node == "hopper" {
		require.Nil(t, row)
		return nil
	}
	require.NotNil(t, row, "docs/monitoring.md lacks the panels without data on %s", b.name)
	return strings.Split(row[1], ", ")
}

// dashboardQueries: Hopper answers every query with the exporter's default sets; on older GPUs the panels that docs/monitoring.md names are
// empty, and the others show data.
func (b *board) dashboardQueries(t *testing.T) (queries []evaluation) {
	t.Helper()
	replacer := strings.NewReplacer("$node", b.node, "$namespace", "team-"+b.node, "$gpu", "GPU-"+b.node+"-.*")
	empty := map[string]bool{}
	for _, title := range b.withoutData(t) {
		empty[title] = true
	}
	for _, each := range append(panels(t, "cluster"), panels(t, "gpu")...) {
		var asked []string
		for _, target := range each.Targets {
			query := replacer.Replace(target.Expr)
			require.NotContains(t, query, "$", "an unknown variable")
			asked = append(asked, query)
			if b.node == "hopper" {
				queries = append(queries, answers(true, query))
			}
		}
		queries = append(queries, answers(!empty[each.Title], asked...))
		delete(empty, each.Title)
	}
	assert.Empty(t, empty, "docs/monitoring.md names panels that no dashboard has")
	return queries
}

// dcgmQueries: Grafana's dashboard 12239 selects GPUs by the labels instance and gpu. Only its tensor cores require GPM.
func (b *board) dcgmQueries() []evaluation {
	const tensor = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
	queries := []evaluation{
		answers(true, fmt.Sprintf(`DCGM_FI_DEV_GPU_TEMP{instance=~%q,gpu!=""}`, b.node)),
		answers(false, fmt.Sprintf(`DCGM_FI_DEV_GPU_TEMP{instance=~%q,gpu=""}`, b.node)),
	}
	for _, name := range []string{
		"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", tensor,
	} {
		want := 2
		if name == tensor && b.node != "hopper" {
			want = 0
		}
		queries = append(queries, counts(fmt.Sprintf(`%s{instance=~%q, gpu=~"0|1"}`, name, b.node), want))
	}
	return queries
}

// adapterRule is a rule of prometheus-adapter.
type adapterRule struct {
	SeriesQuery, MetricsQuery string
	Name                      struct{ Matches, As string }
}

// adapterQueries: prometheus-adapter's rule names the metrics that the sample HPA requests, and its query for each returns a value for
// every pod.
func adapterQueries(t *testing.T) (queries []evaluation) {
	t.Helper()
	var values struct {
		Rules struct{ Custom []adapterRule }
	}
	readMonitoring(t, "prometheus-adapter-values.yaml", &values)
	require.Len(t, values.Rules.Custom, 1)
	rule := values.Rules.Custom[0]
	const utilization, memory = "namespace_pod:prism_gpu_utilization:avg", "namespace_pod:prism_gpu_memory_used_bytes:sum"
	queries = append(queries, evaluation{Expr: "group by (__name__) (" + rule.SeriesQuery + ")", At: "1m", Samples: []sample{{utilization, 1}, {memory, 1}}})
	series := map[string]string{}
	for _, name := range []string{utilization, memory} {
		series[regexp.MustCompile(rule.Name.Matches).ReplaceAllString(name, rule.Name.As)] = name
		query := strings.NewReplacer("<<.Series>>", name, "<<.LabelMatchers>>", `namespace="team-hopper",pod=~"whole|share-0|share-1|partition"`,
			"<<.GroupBy>>", "pod").Replace(rule.MetricsQuery)
		queries = append(queries, counts(query, 4))
	}
	assert.Equal(t, map[string]string{"gpu_utilization": utilization, "gpu_memory_used_bytes": memory}, series)
	var hpa struct {
		Spec struct {
			Metrics []struct {
				Pods struct{ Metric struct{ Name string } }
			}
		}
	}
	readMonitoring(t, "hpa.yaml", &hpa)
	require.NotEmpty(t, hpa.Spec.Metrics)
	for _, m := range hpa.Spec.Metrics {
		require.Contains(t, series, m.Pods.Metric.Name, "the HPA asks for a metric that no rule names")
	}
	return queries
}

// readMonitoring reads a file of deployments/monitoring.
func readMonitoring(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../monitoring", name))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}
