package helm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/config"
	profiles "github.com/prism-gpu/prism/pkg/profiler/rules"
)

const tools = "profiler.tools[0].version=2025.5.1,profiler.tools[0].image=i,profiler.tools[0].path=/opt"

// rulesOf are the rules for profiles in the rendered ConfigMap, parsed like in the plugin.
func rulesOf(t *testing.T, rendered objects, name string) *profiles.Rules {
	t.Helper()
	object, ok := rendered["ConfigMap/"+name]
	require.True(t, ok, "no ConfigMap %s", name)
	data := &corev1.ConfigMap{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, data, true))
	parsed, err := profiles.Parse([]byte(data.Data["profiler.yaml"]))
	require.NoError(t, err)
	return parsed
}

// readable lists the resources of the core group that the plugin may get in the whole cluster.
func readable(t *testing.T, rendered objects, name string) (resources []string) {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(rendered["ClusterRole/"+name].Object, role, true))
	for _, rule := range role.Rules {
		if rule.APIGroups[0] == "" {
			resources = append(resources, rule.Resources...)
		}
	}
	return resources
}

func TestChartProfiler_NoTools_NothingRendered(t *testing.T) {
	rendered := parse(t, render(t, "--set", "profiler.defaults[0].config.enabled=true,profiler.defaults[0].podSelector.matchLabels.a=b"))
	assert.NotContains(t, rendered, "ConfigMap/prism-profiler")
	assert.NotContains(t, rendered, "Role/prism-profiler")
	assert.Equal(t, []string{"nodes", "namespaces", "pods"}, readable(t, rendered, "prism-kubelet-plugin"))
	assert.False(t, pluginConfig(t, rendered, "prism-kubelet-plugin").Profiler.Enabled)
}

// TestChartProfiler_ReportsKept_AllButTheTools: earlier reports can be listed and deleted, with the same objects except the DaemonSet with
// the tools.
func TestChartProfiler_ReportsKept_AllButTheTools(t *testing.T) {
	with, kept := parse(t, render(t, "--set", tools)), parse(t, render(t, "--set", "profiler.reports.keep=true"))
	only := []string{}
	for name := range with {
		if _, both := kept[name]; !both {
			only = append(only, name)
		}
	}
	assert.Equal(t, []string{"DaemonSet/prism-profiler"}, only)
	assert.Len(t, kept, len(with)-1)
	assert.Equal(t, pluginConfig(t, with, "prism-kubelet-plugin"), pluginConfig(t, kept, "prism-kubelet-plugin"))

	kept = parse(t, render(t, "--set", "profiler.reports.keep=true,profiler.defaults[0].config.enabled=true"))
	assert.Empty(t, rulesOf(t, kept, "prism-profiler").Defaults, "no claim is refused for a profile that it did not ask for")
}

func TestChartProfiler_Tools_RulesAsThePluginReadsThem(t *testing.T) {
	rendered := parse(t, render(t, "--set", tools))
	assert.Equal(t, &profiles.Rules{Policy: profiles.Policy{Args: profiles.ArgsDeny}, Defaults: []profiles.Default{}}, rulesOf(t, rendered, "prism-profiler"))
	assert.Equal(t, []string{"nodes", "namespaces", "pods"}, readable(t, rendered, "prism-kubelet-plugin"))
	assert.Equal(t, config.Profiler{
		Enabled: true, Map: "prism-system/prism-profiler", Endpoint: ":8444", Certificate: "/etc/prism/reports", Client: "prism-controller",
		NodeBytes: resource.QuantityValue{Quantity: resource.MustParse("32Gi")}, StartTimeout: 10 * time.Second, ReportTimeout: time.Minute,
	}, pluginConfig(t, rendered, "prism-kubelet-plugin").Profiler)

	all := parse(t, render(t, "-f", everything))
	got := rulesOf(t, all, "prism-everything-profiler")
	assert.Equal(t, profiles.ArgsAllow, got.Policy.Args)
	assert.Equal(t, "8Gi", got.Policy.MaxBytes.String())
	assert.Equal(t, time.Hour, got.Policy.MaxDuration.Duration)
	require.Len(t, got.Defaults, 2)
	assert.Equal(t, "^python", *got.Defaults[0].Config.Match.Regex)
	assert.Equal(t, []string{"nodes", "namespaces", "pods"}, readable(t, all, "prism-everything-kubelet-plugin"))
}

func TestChartProfiler_InvalidValues_Refused(t *testing.T) {
	for set, want := range map[string]string{
		"profiler.startTimeout=500ms":                          "startTimeout",
		"profiler.reportTimeout=1.5m":                          "reportTimeout",
		"profiler.reportTimeout=-1m":                           "reportTimeout",
		"profiler.policy.args=Maybe":                           "policy/args",
		"profiler.tools[0].version=latest":                     "tools/0",
		"profiler.tools[0].image=i":                            "tools/0",
		tools + ",profiler.defaults[0].namespaces[0]=A":        "defaults/0",
		tools + ",profiler.defaults[0].podSelector.labels.a=b": "defaults/0",
		tools + ",profiler.policy.maxRetention=tomorrow":       "maxRetention",
	} {
		_, stderr, err := template(t, "--set", set)
		require.Error(t, err, set)
		assert.Contains(t, stderr, want, set)
	}
}

// pluginConfig is the configuration that the plugin reads from the environment of its DaemonSet.
func pluginConfig(t *testing.T, rendered objects, name string) *config.Plugin {
	t.Helper()
	env := map[string]string{"NODE_NAME": "n0"}
	for _, variable := range exporterSet(t, rendered, name).Spec.Template.Spec.Containers[0].Env {
		if variable.Value != "" {
			env[variable.Name] = variable.Value
		}
	}
	cfg, err := config.LoadPlugin(nil, func(name string) string { return env[name] })
	require.NoError(t, err)
	return cfg
}
