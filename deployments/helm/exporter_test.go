package helm

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

const everything = "testdata/values/everything.yaml"

// exporterSet is the DaemonSet of the exporter.
func exporterSet(t *testing.T, rendered objects, name string) *appsv1.DaemonSet {
	t.Helper()
	object, ok := rendered["DaemonSet/"+name]
	require.True(t, ok, "no DaemonSet %s", name)
	set := &appsv1.DaemonSet{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, set, true))
	return set
}

func TestChartExporter_Values_DaemonSet(t *testing.T) {
	set := exporterSet(t, parse(t, render(t)), "prism-exporter")
	pod := set.Spec.Template.Spec
	assert.False(t, *pod.AutomountServiceAccountToken, "the exporter has no access to the API")
	assert.True(t, pod.HostPID)
	assert.Equal(t, "0", set.Spec.UpdateStrategy.RollingUpdate.MaxSurge.String())
	assert.Equal(t, "10%", set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String())
	for key, value := range set.Spec.Selector.MatchLabels {
		assert.Equal(t, value, set.Spec.Template.Labels[key], key)
	}
	mounts := map[string]corev1.VolumeMount{}
	for _, mount := range pod.Containers[0].VolumeMounts {
		mounts[mount.MountPath] = mount
	}
	for path, readOnly := range map[string]bool{
		"/host": true, "/var/lib/kubelet/plugins": true, "/var/lib/kubelet/pod-resources": true, "/run/gpu.prism.dev/metrics": false, "/dev": false,
	} {
		require.Contains(t, mounts, path)
		assert.Equal(t, readOnly, mounts[path].ReadOnly, path)
	}
	assert.Len(t, mounts, 5)
	off := parse(t, render(t, "--set", "exporter.enabled=false,exporter.podMonitor.create=true,exporter.prometheusRule.create=true,exporter.dashboards.create=true"))
	for key := range off {
		assert.NotContains(t, key, "exporter")
	}
}

// TestChartExporter_Environment_EveryVariableRead: the program reads each variable of the DaemonSet, and the chart's defaults are the
// program's.
func TestChartExporter_Environment_EveryVariableRead(t *testing.T) {
	load := func(name string, args ...string) *config.Exporter {
		env, asked := map[string]string{"NODE_NAME": "n0"}, map[string]bool{}
		for _, variable := range exporterSet(t, parse(t, render(t, args...)), name).Spec.Template.Spec.Containers[0].Env {
			if variable.ValueFrom == nil {
				env[variable.Name] = variable.Value
			}
		}
		loaded, err := config.LoadExporter(nil, func(name string) string {
			asked[name] = true
			return env[name]
		})
		require.NoError(t, err)
		for name := range env {
			assert.True(t, asked[name] || !strings.HasPrefix(name, "PRISM_"), "the exporter does not know %s", name)
		}
		return loaded
	}
	defaults, err := config.LoadExporter([]string{"--node-name=n0"}, func(string) string { return "" })
	require.NoError(t, err)
	assert.Equal(t, defaults, load("prism-exporter"))
	assert.Equal(t, &config.Exporter{
		DriverName: "gpu.example.com", NodeName: "n0", HostRoot: "/host", DriverRoot: "/run/nvidia/driver", SearchDirs: config.Names{"/opt/nvidia/lib", "/opt/nvidia/bin"}, RunDir: "/run/gpu.example.com",
		Sources: config.ExporterSources{
			KubeletPlugins: "/data/kubelet/plugins", KubeletPodResources: "/data/kubelet/pod-resources/kubelet.sock", CRISocket: "/run/crio/crio.sock",
		},
		Sampling: config.Sampling{
			Interval: config.Duration{Duration: 5 * time.Second}, MinInterval: config.Duration{Duration: 500 * time.Millisecond},
			Sets: config.Names{"Basic", "ECC"},
		},
		Pages: config.ExporterPages{PodUID: true, PodLabelKeys: config.Names{"app.kubernetes.io/name", "team"}, Counters: "/etc/prism/counters"}, OTLPEndpoint: "http://collector:4318/v1/metrics",
		Serving:       config.Serving{HTTPEndpoint: ":9500", Pprof: true, Logging: config.Logging{LogVerbosity: 6, LogFormat: "json"}},
		WebConfigFile: "/etc/prism/web/web.yaml", ProbeEndpoint: ":9501",
	}, load("prism-everything-exporter", "--values", everything))
}

// TestChartExporter_Probes_PortOfTheirOwn: neither clients of the pages nor TLS and passwords block the kubelet.
func TestChartExporter_Probes_PortOfTheirOwn(t *testing.T) {
	for name, args := range map[string][]string{"prism-exporter": nil, "prism-everything-exporter": {"--values", everything}} {
		container := exporterSet(t, parse(t, render(t, args...)), name).Spec.Template.Spec.Containers[0]
		for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
			assert.Equal(t, "probes", probe.HTTPGet.Port.String())
		}
		ports := map[string]int32{}
		for _, port := range container.Ports {
			ports[port.Name] = port.ContainerPort
		}
		assert.Len(t, ports, 2)
		assert.Equal(t, ports["metrics"]+1, ports["probes"])
	}
	_, complaint, err := template(t, "--set", "exporter.port=9401")
	require.Error(t, err)
	assert.Contains(t, complaint, "exporter.port and exporter.web.probePort are both 9401")
}

// TestChartExporter_NetworkPolicy_OffUnlessSet: it admits the named peers, or the namespace of the release if none are named.
func TestChartExporter_NetworkPolicy_OffUnlessSet(t *testing.T) {
	assert.NotContains(t, parse(t, render(t)), "NetworkPolicy/prism-exporter")
	for name, c := range map[string]struct {
		args []string
		from networkingv1.NetworkPolicyPeer
	}{
		"prism-exporter": {[]string{"--set", "exporter.networkPolicy.create=true"}, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}},
		"prism-everything-exporter": {[]string{"--values", everything}, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "monitoring"}},
		}},
	} {
		rendered := parse(t, render(t, c.args...))
		object := rendered["NetworkPolicy/"+name]
		require.NotNil(t, object, name)
		var policy networkingv1.NetworkPolicy
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &policy, true))
		assert.Equal(t, exporterSet(t, rendered, name).Spec.Selector.MatchLabels, policy.Spec.PodSelector.MatchLabels)
		assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes)
		require.Len(t, policy.Spec.Ingress, 1)
		assert.Equal(t, []networkingv1.NetworkPolicyPeer{c.from}, policy.Spec.Ingress[0].From)
		require.Len(t, policy.Spec.Ingress[0].Ports, 1)
		assert.Equal(t, "metrics", policy.Spec.Ingress[0].Ports[0].Port.String())
	}
}

// TestChartExporter_Monitors_LabelsOfExporterDropped: a series without pod must not get the exporter's pod.
func TestChartExporter_Monitors_LabelsOfExporterDropped(t *testing.T) {
	rendered := parse(t, render(t, "--values", everything))
	for kind, field := range map[string]string{"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints"} {
		monitor := rendered[kind+"/prism-everything-exporter"]
		require.NotNil(t, monitor, kind)
		assert.Equal(t, "prometheus", monitor.GetLabels()["release"])
		endpoints := dig(t, monitor, "spec", field).([]any)
		require.NotEmpty(t, endpoints)
		for _, endpoint := range endpoints {
			endpoint := endpoint.(map[string]any)
			assert.Equal(t, true, endpoint["honorLabels"])
			assert.Equal(t, "https", endpoint["scheme"])
			assert.Equal(t, []any{
				map[string]any{"action": "labeldrop", "regex": "namespace|pod|container"},
				map[string]any{"sourceLabels": []any{"__meta_kubernetes_pod_node_name"}, "targetLabel": "node"},
				map[string]any{"sourceLabels": []any{"__metrics_path__"}, "targetLabel": "metrics_path"},
			}, endpoint["relabelings"])
		}
	}
	assert.Len(t, dig(t, rendered["PodMonitor/prism-everything-exporter"], "spec", "podMetricsEndpoints"), 2)
}

func TestChartExporter_Counters_OneSource(t *testing.T) {
	rendered := parse(t, render(t, "--set", "exporter.counters.configMap=mine"))
	volumes := exporterSet(t, rendered, "prism-exporter").Spec.Template.Spec.Volumes
	assert.Equal(t, "mine", volumes[len(volumes)-1].ConfigMap.Name)
	_, complaint, err := template(t, "--set", "exporter.counters.configMap=mine,exporter.counters.csv=text")
	require.Error(t, err)
	assert.Contains(t, complaint, "exporter.counters.csv and exporter.counters.configMap are both set")
}

// ruleFile is the content of a file of Prometheus's rules.
type ruleFile struct {
	Groups []struct {
		Name, Interval string
		Rules          []struct {
			Record, Alert, Expr, For string
			Labels, Annotations      map[string]string
		}
	}
}

func rules(t *testing.T) ruleFile {
	t.Helper()
	text, err := os.ReadFile("prism/files/rules.yaml")
	require.NoError(t, err)
	var file ruleFile
	require.NoError(t, yaml.UnmarshalStrict(text, &file))
	return file
}

func TestChartRules_PrometheusRule_IsTheFile(t *testing.T) {
	object := parse(t, render(t, "--values", everything))["PrometheusRule/prism-everything-exporter"]
	require.NotNil(t, object)
	text, err := yaml.Marshal(dig(t, object, "spec"))
	require.NoError(t, err)
	var shown ruleFile
	require.NoError(t, yaml.UnmarshalStrict(text, &shown))
	assert.Equal(t, rules(t), shown)
}

// TestChartRules_EachAlert_TestedAndInSentences: promtool's test file contains each alert and each recorded series.
func TestChartRules_EachAlert_TestedAndInSentences(t *testing.T) {
	tests, err := os.ReadFile("testdata/rules/rules_test.yaml")
	require.NoError(t, err)
	for _, group := range rules(t).Groups {
		for _, rule := range group.Rules {
			assert.Contains(t, string(tests), rule.Alert+rule.Record)
			if rule.Alert == "" {
				continue
			}
			assert.Contains(t, string(tests), "alertname: "+rule.Alert+"\n    exp_alerts", "no test has %s firing", rule.Alert)
			assert.Contains(t, []string{"info", "warning", "critical"}, rule.Labels["severity"], rule.Alert)
			assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			assert.Regexp(t, `\.$`, rule.Annotations["description"], rule.Alert)
		}
	}
}

// TestChartRules_Alerts_ReadNoSamplesOfHours: alerts about containers, of which there are many, use recorded maxima instead.
func TestChartRules_Alerts_ReadNoSamplesOfHours(t *testing.T) {
	long := regexp.MustCompile(`(?:^|[^:\w])(prism_(?:container|mig)_\w+)(?:\{[^}]*})?\[\d+[hd]`)
	for _, group := range rules(t).Groups {
		for _, rule := range group.Rules {
			assert.NotRegexp(t, long, rule.Expr, rule.Alert+rule.Record)
		}
	}
}

// promtool is the program in the cache of localcluster; empty if it is missing: only tests on a cluster build it.
func promtool(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	found, err := filepath.Glob(filepath.Join(cache, "prism/parts/prometheus-*/promtool"))
	require.NoError(t, err)
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

func TestChartRules_Promtool_ChecksAndTests(t *testing.T) {
	program := promtool(t)
	if program == "" {
		t.Skip("no promtool in the cache: build it with `bin/localcluster build prometheus`")
	}
	for _, args := range [][]string{{"check", "rules", "prism/files/rules.yaml"}, {"test", "rules", "testdata/rules/rules_test.yaml"}} {
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

// TestChartQueries_Metrics_AreTheExporters: rules and dashboards query metrics of the exporter, or recorded ones, and of the kubelet plugin its
// findings.
func TestChartQueries_Metrics_AreTheExporters(t *testing.T) {
	known := map[string]bool{"prism_gpu_unhealthy": true}
	for _, family := range metrics.Families() {
		known[family.Name] = true
	}
	for _, name := range []string{"rules.yaml", "dashboard-cluster.json", "dashboard-gpu.json"} {
		text, err := os.ReadFile(filepath.Join("prism/files", name))
		require.NoError(t, err)
		for _, at := range metricName.FindAllStringIndex(string(text), -1) {
			if asked := string(text[at[0]:at[1]]); at[0] > 0 && text[at[0]-1] != ':' {
				assert.True(t, known[asked], "%s asks for %s", name, asked)
			}
		}
	}
}

var metricName = regexp.MustCompile(`\bprism_[a-z0-9_]+`)

// TestChartDashboards_Panels_HaveQueries: each dashboard is JSON whose panels query Prism's metrics.
func TestChartDashboards_Panels_HaveQueries(t *testing.T) {
	rendered := parse(t, render(t, "--values", everything))
	for _, name := range []string{"cluster", "gpu"} {
		object := rendered["ConfigMap/prism-everything-exporter-dashboard-"+name]
		require.NotNil(t, object, name)
		assert.Equal(t, "yes", object.GetLabels()["grafana_dashboard"])
		assert.Equal(t, "GPU", object.GetAnnotations()["grafana_folder"])
		var shown struct {
			UID, Title string
			Panels     []struct {
				ID      int
				Title   string
				Targets []struct{ Expr string }
			}
		}
		text, err := os.ReadFile(filepath.Join("prism/files", "dashboard-"+name+".json"))
		require.NoError(t, err)
		assert.JSONEq(t, string(text), dig(t, object, "data", "prism-"+name+".json").(string))
		require.NoError(t, json.Unmarshal(text, &shown))
		ids := map[int]bool{}
		for _, panel := range shown.Panels {
			assert.False(t, ids[panel.ID], "two panels %d", panel.ID)
			ids[panel.ID] = true
			require.NotEmpty(t, panel.Targets, panel.Title)
			for _, target := range panel.Targets {
				assert.Regexp(t, metricName, target.Expr)
			}
		}
		assert.Greater(t, len(ids), 10)
	}
}
