package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// scraping starts a Prometheus that has two samples of every page, and what the rules record of them.
func scraping(t *testing.T) prometheus {
	t.Helper()
	p, stop, err := start(t.Context(), root, t.TempDir())
	if errors.Is(err, errNoPrometheus) {
		t.Skip(err.Error())
	}
	require.NoError(t, err)
	t.Cleanup(stop)
	for _, ready := range []string{
		"count(count_over_time(prism_gpu_up[1m]) > 1) == 8",
		"count(count_over_time(DCGM_FI_DEV_GPU_TEMP[1m]) > 1) == 8",
		"count(namespace_pod:prism_gpu_utilization:avg) and count(namespace:prism_gpu_allocations:count)",
	} {
		require.Eventually(t, func() bool {
			found, err := p.ask(t.Context(), ready, 0)
			return err == nil && len(found) > 0
		}, 2*time.Minute, 100*time.Millisecond, ready)
	}
	return p
}

// TestQueries_ExamplePages_Answered: what the dashboards, the HPA and Grafana's dashboard 12239 ask, of the exporter's default sets.
func TestQueries_ExamplePages_Answered(t *testing.T) {
	p := scraping(t)
	t.Run("dashboards", func(t *testing.T) { checkDashboards(t, p) })
	t.Run("adapter", func(t *testing.T) { checkAdapter(t, p) })
	t.Run("12239", func(t *testing.T) { checkDCGM(t, p) })
	t.Run("page", func(t *testing.T) { checkPage(t, p) })
}

// empty are the panels without data on the GPUs of a board, as "dashboard: panel", and the queries without.
func empty(ctx context.Context, t *testing.T, p prometheus, b *board) (panels, queries []string) {
	t.Helper()
	all, err := dashboards(root, map[string]string{"node": b.node, "namespace": "team-" + b.node, "gpu": "GPU-" + b.node + "-.*"})
	require.NoError(t, err)
	for _, d := range all {
		for _, each := range d.Panels {
			answered := false
			for _, target := range each.Targets {
				require.NotContains(t, target.Expr, "$", "an unknown variable")
				found, err := p.ask(ctx, target.Expr, 0)
				require.NoError(t, err)
				if len(found) == 0 {
					queries = append(queries, each.Title+": "+target.Expr)
				}
				answered = answered || len(found) > 0
			}
			if !answered {
				panels = append(panels, each.Title)
			}
		}
	}
	return panels, queries
}

// checkDashboards: Hopper answers every query with the exporter's default sets; on older GPUs the panels that docs/monitoring.md names are
// empty.
func checkDashboards(t *testing.T, p prometheus) {
	t.Helper()
	docs, err := os.ReadFile(filepath.Join(root, "docs/monitoring.md"))
	require.NoError(t, err)
	for i := range boards {
		t.Run(boards[i].node, func(t *testing.T) {
			panels, queries := empty(t.Context(), t, p, &boards[i])
			if boards[i].node == "hopper" {
				assert.Empty(t, queries)
				return
			}
			row := fmt.Sprintf("| %s | %s |\n", boards[i].name, strings.Join(panels, ", "))
			assert.Contains(t, string(docs), row, "docs/monitoring.md lacks the row %s", row)
		})
	}
}

// adapterRule is a rule of prometheus-adapter.
type adapterRule struct {
	SeriesQuery, MetricsQuery string
	Name                      struct{ Matches, As string }
}

// checkAdapter: prometheus-adapter's rule names the metrics that the sample HPA asks for, and its query of each returns a value of every pod.
func checkAdapter(t *testing.T, p prometheus) {
	t.Helper()
	var values struct {
		Rules struct{ Custom []adapterRule }
	}
	read(t, "prometheus-adapter-values.yaml", &values)
	require.Len(t, values.Rules.Custom, 1)
	rule := values.Rules.Custom[0]
	found, err := p.ask(t.Context(), rule.SeriesQuery, 0)
	require.NoError(t, err)
	series := map[string]string{}
	for _, s := range found {
		name := s.Labels["__name__"]
		series[regexp.MustCompile(rule.Name.Matches).ReplaceAllString(name, rule.Name.As)] = name
	}
	assert.Equal(t, map[string]string{
		"gpu_utilization": "namespace_pod:prism_gpu_utilization:avg", "gpu_memory_used_bytes": "namespace_pod:prism_gpu_memory_used_bytes:sum",
	}, series)
	var hpa struct {
		Spec struct {
			Metrics []struct {
				Pods struct{ Metric struct{ Name string } }
			}
		}
	}
	read(t, "hpa.yaml", &hpa)
	require.NotEmpty(t, hpa.Spec.Metrics)
	for _, m := range hpa.Spec.Metrics {
		require.Contains(t, series, m.Pods.Metric.Name, "the HPA asks for a metric that no rule names")
	}
	for _, of := range series {
		query := strings.NewReplacer("<<.Series>>", of, "<<.LabelMatchers>>", `namespace="team-hopper",pod=~"whole|share-0|share-1|partition"`,
			"<<.GroupBy>>", "pod").Replace(rule.MetricsQuery)
		found, err = p.ask(t.Context(), query, 0)
		require.NoError(t, err)
		assert.Len(t, found, 4, "%s: %v", of, found)
	}
}

// read reads a file of deployments/monitoring.
func read(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deployments/monitoring", name))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}

// checkDCGM: Grafana's dashboard 12239 chooses GPUs by the labels instance and gpu. Only its tensor cores need
// GPM.
func checkDCGM(t *testing.T, p prometheus) {
	t.Helper()
	const tensor = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
	for _, b := range boards {
		gpus, err := p.ask(t.Context(), fmt.Sprintf("count by (gpu) (DCGM_FI_DEV_GPU_TEMP{instance=~%q})", b.node), 0)
		require.NoError(t, err)
		require.NotEmpty(t, gpus, b.node)
		for _, s := range gpus {
			require.NotEmpty(t, s.Labels["gpu"], b.node)
		}
		for _, name := range []string{
			"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", tensor,
		} {
			found, err := p.ask(t.Context(), fmt.Sprintf(`%s{instance=~%q, gpu=~"0|1"}`, name, b.node), 0)
			require.NoError(t, err)
			want := 2
			if name == tensor && b.node != "hopper" {
				want = 0
			}
			assert.Len(t, found, want, "%s on %s", name, b.node)
		}
	}
}

func checkPage(t *testing.T, p prometheus) {
	t.Helper()
	all, err := dashboards(root, map[string]string{"node": ".*", "namespace": ".*", "gpu": ".*"})
	require.NoError(t, err)
	var html bytes.Buffer
	// A line needs two points in time.
	require.Eventually(t, func() bool {
		html.Reset()
		drawn, err := draw(t.Context(), p, all, 10*time.Second)
		err = errors.Join(err, page.Execute(&html, map[string]any{"Dashboards": drawn, "From": string(p), "Past": time.Second, "At": "now"}))
		return assert.NoError(t, err) && strings.Contains(html.String(), "<polyline")
	}, 2*time.Minute, 100*time.Millisecond, "no panel has a line")
	assert.Contains(t, html.String(), "This is no Grafana")
	for _, d := range all {
		for _, each := range d.Panels {
			assert.Contains(t, html.String(), "<h3>"+each.Title+"</h3>")
		}
	}
}
