package helm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

// TestChartConfig_Values_InConfigMap: the ConfigMap contains the text of the values, also if they are YAML and not text.
func TestChartConfig_Values_InConfigMap(t *testing.T) {
	rendered := parse(t, render(t, "--values", "testdata/values/node-config.yaml"))
	data := dig(t, rendered["ConfigMap/prism-config"], "data").(map[string]any)
	require.Len(t, data, 2)
	decode := func(key string) *v1alpha1.NodeConfig {
		config, err := v1alpha1.DecodeNodeConfig([]byte(data[key].(string)))
		require.NoError(t, err)
		require.NoError(t, config.Validate())
		return config
	}
	assert.Equal(t, []v1alpha1.GPUEntry{{
		Select: &v1alpha1.GPUSelect{Indices: []int32{6, 7}, Products: []string{"NVIDIA H100*"}},
		Modes:  []v1alpha1.Mode{v1alpha1.ModeWhole, v1alpha1.ModeMIG},
		MIG:    &v1alpha1.NodeMIG{Profiles: []string{"1g.10gb", "1g.10gb+me", "2g.20gb", "3g.40gb"}},
	}}, decode("mig").GPUs)
	assert.Equal(t, "# As text, with its comments.\napiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\n\ngpus:\n- modes: [whole]\n",
		data["whole.yaml"])
	decode("whole.yaml")
}

// TestChartConfig_Text_Unchanged: text is not changed, with any first line.
func TestChartConfig_Text_Unchanged(t *testing.T) {
	rendered := parse(t, render(t, "--set-file", "config.map.a=testdata/indented.yaml"))
	assert.Equal(t, "  # Indented more than the rest.\nkind: NodeConfig\n", dig(t, rendered["ConfigMap/prism-config"], "data", "a"))
}

// TestChartConfig_Name_ReadableByPluginOnly: the plugin gets the name of the ConfigMap that it may read, and may read no other.
func TestChartConfig_Name_ReadableByPluginOnly(t *testing.T) {
	for name, test := range map[string]struct {
		set             string
		wantMap, wantAs string
	}{
		"of the chart":           {"config.map.a=x", "prism-config", ""},
		"of the chart, by name":  {"config.map.a=x,config.map.b=x,config.default=b", "prism-config", "b"},
		"of the chart, default":  {"config.map.a=x,config.map.default=x", "prism-config", ""},
		"of the chart, or none":  {"config.map.a=x,config.map.b=x,config.fallbackStrategies={empty}", "prism-config", ""},
		"of the chart, made":     {"config.create=true", "prism-config", ""},
		"of the chart, to edit":  {"config.create=true,config.default=default", "prism-config", "default"},
		"one that exists, kept":  {"config.name=nodes,config.create=true", "nodes", ""},
		"one that exists":        {"config.name=nodes", "nodes", ""},
		"one that exists, a key": {"config.name=nodes,config.default=b", "nodes", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			rendered := parse(t, render(t, "--set", test.set))
			env := environment(t, rendered)
			assert.Equal(t, namespace+"/"+test.wantMap, env["PRISM_NODE_CONFIG_MAP"])
			assert.Equal(t, test.wantAs, env["PRISM_NODE_CONFIG_NAME"])
			_, made := rendered["ConfigMap/"+test.wantMap]
			assert.Equal(t, test.wantMap == "prism-config", made)

			assert.Equal(t, []any{map[string]any{
				"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"get", "list", "watch"}, "resourceNames": []any{test.wantMap},
			}}, dig(t, rendered.only(t, "Role"), "rules"))
			binding := rendered.only(t, "RoleBinding")
			assert.Equal(t, rendered.only(t, "Role").GetName(), dig(t, binding, "roleRef", "name"))
			assert.Equal(t, dig(t, rendered.only(t, "ClusterRoleBinding"), "subjects"), dig(t, binding, "subjects"))
		})
	}
}

// TestChartConfig_None_NoObjects: without a configuration the plugin gets neither a name of a ConfigMap nor the right to read one.
func TestChartConfig_None_NoObjects(t *testing.T) {
	rendered := parse(t, render(t))
	assert.NotContains(t, environment(t, rendered), "PRISM_NODE_CONFIG_MAP")
	for key, object := range rendered {
		assert.NotEqual(t, "ConfigMap", object.GetKind(), key)
		assert.NotContains(t, []string{"Role/prism-kubelet-plugin", "RoleBinding/prism-kubelet-plugin"}, key)
	}
	assert.NotContains(t, render(t), "PRISM_NODE_CONFIG_MAP")
	assert.NotContains(t, render(t), "configmaps")
}

// TestChartConfig_Changed_PodTemplateUnchanged: the plugin applies changes without restart.
func TestChartConfig_Changed_PodTemplateUnchanged(t *testing.T) {
	pod := func(args ...string) any {
		return dig(t, parse(t, render(t, args...)).only(t, "DaemonSet"), "spec", "template")
	}
	assert.Equal(t, pod("--set", "config.map.a=x"), pod("--set", "config.map.a=y,config.map.default=z"))
}

// TestChartConfig_SelectionRules_PassedToPlugin: the plugin gets the rules that select a node's entry.
func TestChartConfig_SelectionRules_PassedToPlugin(t *testing.T) {
	env := environment(t, parse(t, render(t, "--set", "config.map.a=x")))
	assert.Equal(t, "nvidia.com/device-plugin.config", env["PRISM_NODE_CONFIG_LABEL"])
	assert.Equal(t, "named,single", env["PRISM_NODE_CONFIG_FALLBACKS"])
	env = environment(t, parse(t, render(t, "--set", "config.create=true,config.nodeLabel=example.com/gpus,config.fallbackStrategies={empty}")))
	assert.Equal(t, "example.com/gpus", env["PRISM_NODE_CONFIG_LABEL"])
	assert.Equal(t, "empty", env["PRISM_NODE_CONFIG_FALLBACKS"])
}

// TestChartConfigCreate_FirstInstall_NoEntries: a ConfigMap whose entries are edited in the cluster is empty at first, so that all GPUs are
// advertised whole.
func TestChartConfigCreate_FirstInstall_NoEntries(t *testing.T) {
	rendered := parse(t, render(t, "--set", "config.create=true"))
	assert.NotContains(t, rendered["ConfigMap/prism-config"].Object, "data")
	choice := nodeconfig.Choice{}
	for fallback := range strings.SplitSeq(environment(t, rendered)["PRISM_NODE_CONFIG_FALLBACKS"], ",") {
		choice.Fallbacks = append(choice.Fallbacks, nodeconfig.Fallback(fallback))
	}
	config, _, err := nodeconfig.Pick(nil, choice)
	require.NoError(t, err)
	assert.Nil(t, config)
}
