package helm

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

type foreignValue struct {
	Name        string `json:"name"`
	Accepted    bool   `json:"accepted"`
	Replacement string `json:"replacement"`
}

func foreignValues(t *testing.T) []foreignValue {
	t.Helper()
	content, err := os.ReadFile("prism/migration.yaml")
	require.NoError(t, err)
	var list struct{ Values []foreignValue }
	require.NoError(t, yaml.UnmarshalStrict(content, &list))
	require.NotEmpty(t, list.Values)
	return list.Values
}

// TestMigration_ForeignValues_RefusedWithReplacement sets all values of the device plugin's chart at once; the error names every one.
func TestMigration_ForeignValues_RefusedWithReplacement(t *testing.T) {
	var set []string
	for _, v := range foreignValues(t) {
		if !v.Accepted {
			set = append(set, v.Name+"=false")
		}
	}
	_, complaint, err := template(t, "--set", strings.Join(set, ","))
	require.Error(t, err)
	for _, v := range foreignValues(t) {
		if !v.Accepted {
			assert.Contains(t, complaint, "\n  "+v.Name+": "+v.Replacement+"\n")
		}
	}
}

func TestMigration_UnknownValueBelowForeignOne_Refused(t *testing.T) {
	_, complaint, err := template(t, "--set", "devicePlugin.hostNetwork=true")
	require.Error(t, err)
	assert.Contains(t, complaint, "values of the chart of NVIDIA's device plugin are not supported:\n  devicePlugin: remove it\n")
}

func TestMigration_AcceptedValues_Rendered(t *testing.T) {
	render(t, "--set-json", `config.map={"default": "version: v1"}`, "--set", "config.default=default,config.fallbackStrategies={single},migStrategy=mixed,"+
		"failOnInitError=true,nvidiaDriverRoot=/run/nvidia/driver,nameOverride=a,fullnameOverride=b,imagePullSecrets[0].name=c,"+
		"image.repository=d,image.pullPolicy=Always,image.tag=e")
}

func TestMIGStrategy_Entries_Set(t *testing.T) {
	rendered := parse(t, render(t, "--set-json", `config.map={"default": {"apiVersion": "gpu.prism.dev/v1alpha1", "kind": "NodeConfig", "gpus": [{"modes": ["whole"]}]},
		"file": "version: v1\nflags: {migStrategy: none, gdsEnabled: true}\n", "text": "no configuration"}`, "--set", "migStrategy=single"))
	data := dig(t, rendered["ConfigMap/prism-config"], "data").(map[string]any)
	config, err := v1alpha1.DecodeNodeConfig([]byte(data["default"].(string)))
	require.NoError(t, err)
	assert.Equal(t, v1alpha1.MIGStrategySingle, *config.Flags.MIGStrategy)
	assert.Equal(t, []v1alpha1.GPUEntry{{Modes: []v1alpha1.Mode{v1alpha1.ModeWhole}}}, config.GPUs)
	assert.YAMLEq(t, "version: v1\nflags: {migStrategy: single, gdsEnabled: true}", data["file"].(string))
	assert.Equal(t, "no configuration\n", data["text"])
}

func TestMIGStrategy_NoConfiguration_EntryCreated(t *testing.T) {
	rendered := parse(t, render(t, "--set", "migStrategy=single"))
	config, err := v1alpha1.DecodeNodeConfig([]byte(dig(t, rendered["ConfigMap/prism-config"], "data", "default").(string)))
	require.NoError(t, err)
	assert.Equal(t, v1alpha1.MIGStrategySingle, *config.Flags.MIGStrategy)
	assert.Equal(t, namespace+"/prism-config", environment(t, rendered)["PRISM_NODE_CONFIG_MAP"])
}

func TestMIGStrategy_ConfigMapOfTheCluster_Refused(t *testing.T) {
	for _, set := range []string{"config.name=nodes", "config.create=true"} {
		_, complaint, err := template(t, "--set", "migStrategy=single,"+set)
		require.Error(t, err)
		assert.Contains(t, complaint, "set flags.migStrategy in its entries")
	}
}
