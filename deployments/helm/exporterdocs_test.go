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

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

const docs = "../../docs"

// blocks are the code blocks of a language in a file of the docs.
func blocks(t *testing.T, file, language string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, file))
	require.NoError(t, err)
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		found = append(found, match[1])
	}
	return found
}

// relabelling is a rule of a scrape configuration.
type relabelling struct {
	Source      []string `json:"source_labels"` //nolint:tagliatelle // Prometheus's
	Regex       string
	Action      string
	TargetLabel string `json:"target_label"` //nolint:tagliatelle // Prometheus's
}

// kept reports whether a target with these labels is scraped.
func kept(t *testing.T, rules []relabelling, target map[string]string) bool {
	t.Helper()
	for _, rule := range rules {
		if rule.Action != "keep" {
			continue
		}
		var values []string
		for _, label := range rule.Source {
			values = append(values, target[label])
		}
		if !regexp.MustCompile("^(?:" + rule.Regex + ")$").MatchString(strings.Join(values, ";")) {
			return false
		}
	}
	return true
}

// TestDocs_ScrapeConfig_KeepsTheExporterAlone for any names of the installation.
func TestDocs_ScrapeConfig_KeepsTheExporterAlone(t *testing.T) {
	var config struct {
		Scrapes []struct {
			HonorLabels bool          `json:"honor_labels"`    //nolint:tagliatelle // Prometheus's
			Relabel     []relabelling `json:"relabel_configs"` //nolint:tagliatelle // Prometheus's
		} `json:"scrape_configs"` //nolint:tagliatelle // Prometheus's
	}
	for _, block := range blocks(t, "monitoring.md", "yaml") {
		if strings.HasPrefix(block, "scrape_configs:") {
			require.NoError(t, yaml.Unmarshal([]byte(block), &config))
		}
	}
	require.Len(t, config.Scrapes, 1)
	assert.True(t, config.Scrapes[0].HonorLabels)
	invalid := regexp.MustCompile(`[^a-zA-Z0-9_]`)
	for _, names := range [][]string{nil, {"--set", "nameOverride=gpus"}, {"--set", "fullnameOverride=other,nameOverride=x"}} {
		var scraped []string
		for key, object := range parse(t, render(t, names...)) {
			if !strings.HasPrefix(key, "DaemonSet/") && !strings.HasPrefix(key, "Deployment/") {
				continue
			}
			labels, _ := dig(t, object, "spec", "template", "metadata", "labels").(map[string]any)
			for _, container := range dig(t, object, "spec", "template", "spec", "containers").([]any) {
				ports, _ := container.(map[string]any)["ports"].([]any)
				for _, port := range ports {
					name := port.(map[string]any)["name"].(string)
					target := map[string]string{"__meta_kubernetes_pod_container_port_name": name}
					for label, value := range labels {
						target["__meta_kubernetes_pod_label_"+invalid.ReplaceAllString(label, "_")] = value.(string)
					}
					if kept(t, config.Scrapes[0].Relabel, target) {
						scraped = append(scraped, strings.TrimPrefix(key, "DaemonSet/")+" "+name)
					}
				}
			}
		}
		require.Len(t, scraped, 1, "%v", names)
		assert.Regexp(t, `-exporter metrics$`, scraped[0])
	}
}

// sample is an expected series of a query.
type sample struct {
	Labels string  `json:"labels"`
	Value  float64 `json:"value"`
}

// The allocations of a whole GPU that two containers share, and of a MIG device, with the values of both exporters for them.
var (
	docSeries = []string{
		`prism_gpu_allocation_info{node="n0",namespace="a",pod="one",container="main",gpu_uuid="GPU-1",claim="c"} 1`,
		`prism_gpu_allocation_info{node="n0",namespace="a",pod="two",container="main",gpu_uuid="GPU-1",claim="c"} 1`,
		`prism_gpu_allocation_info{node="n0",namespace="b",pod="mig",container="main",gpu_uuid="GPU-2",mig_uuid="MIG-7",claim="d"} 1`,
		`prism_mig_info{node="n0",gpu_uuid="GPU-2",mig_uuid="MIG-7",gpu="1",profile="1g.5gb",gpu_instance="7",compute_instance="0"} 1`,
		`prism_mig_info{node="n0",gpu_uuid="GPU-2",mig_uuid="MIG-8",gpu="1",profile="1g.5gb",gpu_instance="8",compute_instance="0"} 1`,
		`prism_mig_utilization_ratio{node="n0",gpu_uuid="GPU-2",mig_uuid="MIG-7"} 0.75`,
		`DCGM_FI_PROF_SM_ACTIVE{Hostname="n0",gpu="0",UUID="GPU-1",modelName="NVIDIA A100"} 0.5`,
		`DCGM_FI_PROF_SM_ACTIVE{Hostname="n0",gpu="1",UUID="GPU-2",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7"} 0.25`,
		`DCGM_FI_PROF_SM_ACTIVE{Hostname="n0",gpu="1",UUID="GPU-2",GPU_I_PROFILE="1g.5gb",GPU_I_ID="8"} 0.125`,
		`DCGM_FI_PROF_SM_ACTIVE{Hostname="n0",gpu="9",UUID="GPU-9"} 1`,
	}
	docQueries = map[string][][]sample{
		"metrics.md": {{
			{`{node="n0",namespace="b",pod="mig",container="main",gpu_uuid="GPU-2",mig_uuid="MIG-7",claim="d"}`, 0.75},
		}},
		"reference/metrics.md": {
			{
				{`{node="n0",namespace="a",pod="one",container="main",gpu_uuid="GPU-1",claim="c",UUID="GPU-1"}`, 0.5},
				{`{node="n0",namespace="a",pod="two",container="main",gpu_uuid="GPU-1",claim="c",UUID="GPU-1"}`, 0.5},
			},
			{{
				`{node="n0",namespace="b",pod="mig",container="main",gpu_uuid="GPU-2",mig_uuid="MIG-7",claim="d",` +
					`gpu_instance="7",UUID="GPU-2",GPU_I_ID="7"}`, 0.25,
			}},
		},
	}
)

// TestDocs_Queries_EvaluatedAsWritten: promtool evaluates each query of the docs on series of prism-exporter and of dcgm-exporter beside
// it.
func TestDocs_Queries_EvaluatedAsWritten(t *testing.T) {
	var queries []evaluation
	for _, pattern := range []string{"*.md", "reference/*.md"} {
		files, err := filepath.Glob(filepath.Join(docs, pattern))
		require.NoError(t, err)
		for _, path := range files {
			file, err := filepath.Rel(docs, path)
			require.NoError(t, err)
			found := blocks(t, file, "promql")
			require.Len(t, found, len(docQueries[file]), "%s: queries without a test here", file)
			for i := range found {
				queries = append(queries, evaluation{found[i], "1m", docQueries[file][i]})
			}
		}
	}
	require.Len(t, queries, 3)
	var inputs []input
	for _, line := range docSeries {
		at := strings.LastIndex(line, " ")
		inputs = append(inputs, input{line[:at], line[at+1:] + "x5"})
	}
	tests, err := yaml.Marshal(map[string]any{"tests": []any{map[string]any{
		"interval": "1m", "input_series": inputs, "promql_expr_test": queries,
	}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "docs.yaml")
	require.NoError(t, os.WriteFile(file, tests, 0o600))
	program := promtool(t)
	if program == "" {
		t.Skip("no promtool in the cache: build it with `bin/localcluster build prometheus`")
	}
	out, err := exec.CommandContext(t.Context(), program, "test", "rules", file).CombinedOutput()
	require.NoError(t, err, string(out))
}

// TestDocs_CountersBesidePrism_AreThoseThatOldGPUsLack: the CSV of the recipe contains each default field that GPUs before Hopper lack, and
// no field that Prism provides for them.
func TestDocs_CountersBesidePrism_AreThoseThatOldGPUsLack(t *testing.T) {
	found := blocks(t, "reference/metrics.md", "csv")
	require.Len(t, found, 1)
	chosen, problems, err := metrics.ParseCSV([]byte(found[0]))
	require.NoError(t, err)
	assert.Empty(t, problems)
	var lacking []string
	for _, f := range metrics.DCGMFields() {
		old := len(f.Fields) > 0
		for _, field := range f.Fields {
			old = old && metrics.Table[field].Since >= metrics.Hopper
		}
		if f.Default && old {
			lacking = append(lacking, f.Name)
		}
	}
	assert.Equal(t, lacking, chosen.Names())
}
