package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// Jobs of Prometheus: for the exporter's two monitors, and for the plugin's.
const (
	podMonitorJob     = system + "/prism-exporter"
	serviceMonitorJob = "prism-exporter"
	pluginJob         = system + "/" + pluginName
)

// monitorValues makes the chart create every monitor. Both monitors of the exporter would count each series twice in sums of the rules, so
// the ServiceMonitor's endpoint keeps two metrics.
const monitorValues = `
exporter:
  podMonitor: {create: true, interval: 1s, paths: [/metrics, /metrics/dcgm]}
  serviceMonitor:
    create: true
    interval: 1s
    endpoint:
      metricRelabelings:
      - {action: keep, sourceLabels: [__name__], regex: prism_gpu_utilization_ratio|prism_container_gpu_utilization_ratio}
metrics:
  podMonitor: {create: true, interval: 1s}
`

// monitor is a PodMonitor or a ServiceMonitor with the fields that the chart sets.
type monitor struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		Selector            metav1.LabelSelector
		PodMetricsEndpoints []endpoint
		Endpoints           []endpoint
	}
}

type endpoint struct {
	Port, Path, Interval string
	HonorLabels          bool
	Relabelings          []relabeling
	MetricRelabelings    []relabeling
}

// relabeling is a rule in the format of the monitors.
type relabeling struct {
	Action, Regex, Replacement, TargetLabel string
	SourceLabels                            []string
}

// rule returns the rule in the format of Prometheus.
func (r relabeling) rule() map[string]any {
	rule := map[string]any{}
	for key, value := range map[string]string{
		"action": strings.ToLower(r.Action), "regex": r.Regex, "replacement": r.Replacement, "target_label": r.TargetLabel,
	} {
		if value != "" {
			rule[key] = value
		}
	}
	if len(r.SourceLabels) > 0 {
		rule["source_labels"] = r.SourceLabels
	}
	return rule
}

func rules(all []relabeling) (written []map[string]any) {
	for _, r := range all {
		written = append(written, r.rule())
	}
	return written
}

// scrapeConfiguration returns the configuration that the Prometheus operator would generate from the monitors of the chart, and the chart's
// rules.
func (c *cluster) scrapeConfiguration() ([]byte, error) {
	discovery, err := c.discovery()
	if err != nil {
		return nil, err
	}
	manifest, err := c.run(monitorValues, c.helmLine("template", "prism", filepath.Join(c.root, "deployments/helm/prism"),
		"--values=-", "--show-only=templates/monitoring.yaml", "--show-only=templates/metrics.yaml")...)
	if err != nil {
		return nil, err
	}
	jobs := []map[string]any{}
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		var m monitor
		if err := yaml.Unmarshal([]byte(document), &m); err != nil {
			return nil, err
		}
		if strings.HasSuffix(m.Kind, "Monitor") {
			jobs = append(jobs, m.jobs(discovery)...)
		}
	}
	return json.Marshal(map[string]any{
		"global":         map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{filepath.Join(c.root, "deployments/helm/prism/files/rules.yaml")},
		"scrape_configs": jobs,
	})
}

// discovery configures how Prometheus finds objects: with the rights of the tests, at the API server's address in the cluster.
func (c *cluster) discovery() (map[string]any, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.variable("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	address, err := c.run("", c.kubectl("get", "--namespace=default", "endpointslice/kubernetes",
		"--output=jsonpath={.endpoints[0].addresses[0]}")...)
	return map[string]any{
		"api_server": "https://" + address,
		"tls_config": map[string]string{
			"ca_file": config.CAFile, "cert_file": config.CertFile, "key_file": config.KeyFile,
		},
		"namespaces": map[string]any{"names": []string{system}},
	}, err
}

// jobs returns one job for each endpoint.
func (m *monitor) jobs(discovery map[string]any) (jobs []map[string]any) {
	pods := m.Kind == "PodMonitor"
	job, role, endpoints := m.Metadata.Name, "endpointslice", m.Spec.Endpoints
	if pods {
		job, role, endpoints = m.Metadata.Namespace+"/"+m.Metadata.Name, "pod", m.Spec.PodMetricsEndpoints
	}
	where := maps.Clone(discovery)
	where["role"] = role
	for i, e := range endpoints {
		targets := append(m.found(&e, pods), map[string]any{"target_label": "job", "replacement": job},
			map[string]any{"target_label": "endpoint", "replacement": e.Port})
		jobs = append(jobs, map[string]any{
			"job_name": fmt.Sprintf("%s/%s/%d", m.Kind, m.Metadata.Name, i), "metrics_path": e.Path, "scrape_interval": e.Interval,
			"scrape_timeout": "1s", "honor_labels": e.HonorLabels, "kubernetes_sd_configs": []any{where},
			"relabel_configs": append(targets, rules(e.Relabelings)...), "metric_relabel_configs": rules(e.MetricRelabelings),
		})
	}
	return jobs
}

// notInLabels matches characters that are replaced when Prometheus turns names into names of labels.
var notInLabels = regexp.MustCompile(`[^a-zA-Z0-9_]`)

// found returns the rules that keep the endpoint of the monitor's selected objects, and set the labels that the monitor's own rules see.
func (m *monitor) found(e *endpoint, pods bool) []map[string]any {
	const prefix = "__meta_kubernetes_"
	selected, port := prefix+"service_label_", prefix+"endpointslice_port_name"
	if pods {
		selected, port = prefix+"pod_label_", prefix+"pod_container_port_name"
	}
	keep := func(label, value string) map[string]any {
		return map[string]any{"action": "keep", "source_labels": []string{label}, "regex": regexp.QuoteMeta(value)}
	}
	rules := []map[string]any{
		{"action": "drop", "source_labels": []string{prefix + "pod_phase"}, "regex": "Failed|Succeeded"}, keep(port, e.Port),
	}
	for _, label := range slices.Sorted(maps.Keys(m.Spec.Selector.MatchLabels)) {
		rules = append(rules, keep(selected+notInLabels.ReplaceAllString(label, "_"), m.Spec.Selector.MatchLabels[label]))
	}
	set := map[string]string{"namespace": "namespace", "pod_name": "pod", "pod_container_name": "container"}
	if !pods {
		set["service_name"] = "service"
	}
	for _, label := range slices.Sorted(maps.Keys(set)) {
		rules = append(rules, map[string]any{"source_labels": []string{prefix + label}, "target_label": set[label]})
	}
	return rules
}
