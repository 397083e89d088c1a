package helm

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/controller/classes"
	"github.com/prism-gpu/prism/pkg/controller/labels"
)

// TestChartController_Environment_EveryVariableRead loads the controller's configuration from the environment of the Deployment: the
// program must read every PRISM_ variable, and the chart's defaults must be the program's.
func TestChartController_Environment_EveryVariableRead(t *testing.T) {
	rendered := parse(t, render(t, "--set", "config.map.a=x", "--set", "driverName=gpu.example.com"))
	containers := dig(t, rendered["Deployment/prism-controller"], "spec", "template", "spec", "containers").([]any)
	env := map[string]string{}
	for _, variable := range containers[0].(map[string]any)["env"].([]any) {
		variable := variable.(map[string]any)
		value, given := variable["value"].(string)
		if !given {
			value = namespace
		}
		env[variable["name"].(string)] = value
	}
	delete(env, "NVIDIA_VISIBLE_DEVICES")
	asked := map[string]bool{}
	loaded, err := config.LoadController(nil, func(name string) string {
		asked[name] = true
		return env[name]
	})
	require.NoError(t, err)
	for name := range env {
		assert.True(t, asked[name], "the controller does not know %s", name)
	}
	defaults, err := config.LoadController([]string{
		"--driver-name=gpu.example.com", "--node-config-map=prism-system/prism-config", "--namespace=prism-system", "--owner-role=prism-controller",
		"--admission-certificate=/etc/prism/admission",
	}, func(string) string { return "" })
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(defaults, loaded))
}

// TestChartController_Roles_NameItsObjects: the objects in the roles are the objects of the controller, and one account is bound to all
// roles.
func TestChartController_Roles_NameItsObjects(t *testing.T) {
	rendered := parse(t, render(t, "--set", "config.name=nodes", "--set", "driverName=gpu.example.com"))
	named := map[string]any{}
	for _, role := range []string{"ClusterRole/prism-controller", "Role/prism-controller"} {
		for _, rule := range dig(t, rendered[role], "rules").([]any) {
			rule := rule.(map[string]any)
			if names, ok := rule["resourceNames"].([]any); ok {
				named[rule["resources"].([]any)[0].(string)] = names[0]
			}
		}
	}
	assert.Equal(t, map[string]any{
		"validatingadmissionpolicies": classes.PolicyName("prism-controller", "gpu.example.com"), "clusterroles": "prism-controller",
		"configmaps": "nodes", "leases": "prism-controller", "clusterrolebindings": labels.BindingName("prism-controller"),
	}, named)
	account := dig(t, rendered["Deployment/prism-controller"], "spec", "template", "spec", "serviceAccountName")
	require.Contains(t, rendered, "ServiceAccount/"+account.(string))
	for _, binding := range []string{"ClusterRoleBinding/prism-controller", "RoleBinding/prism-controller"} {
		assert.Equal(t, account, dig(t, rendered[binding], "subjects").([]any)[0].(map[string]any)["name"])
		assert.Equal(t, "prism-controller", dig(t, rendered[binding], "roleRef", "name"))
	}
	podLabels := dig(t, rendered["Deployment/prism-controller"], "spec", "template", "metadata", "labels")
	assert.Equal(t, podLabels, dig(t, rendered["Deployment/prism-controller"], "spec", "selector", "matchLabels"))
}

func TestChartController_Disabled_NoObjects(t *testing.T) {
	for key, object := range parse(t, render(t, "--set", "config.map.a=x,controller.enabled=false,metrics.podMonitor.create=true")) {
		assert.NotEqual(t, "controller", object.GetLabels()["app.kubernetes.io/component"], key)
	}
}

// TestChartController_Default_NamesGPUs: with the chart's defaults the controller runs, without a configuration, and sets the resource name
// of whole GPUs. It lists nodes only if it must decide about that name.
func TestChartController_Default_NamesGPUs(t *testing.T) {
	for set, want := range map[string]struct {
		printed string
		lists   bool
	}{
		"":                                      {"Auto", true},
		"controller.gpuExtendedResource=Always": {"Always", false},
		"controller.gpuExtendedResource=Never":  {"Never", false},
	} {
		rendered := parse(t, render(t, "--set", set))
		require.Contains(t, rendered, "Deployment/prism-controller")
		containers := dig(t, rendered["Deployment/prism-controller"], "spec", "template", "spec", "containers").([]any)
		assert.Contains(t, containers[0].(map[string]any)["env"], map[string]any{"name": "PRISM_GPU_EXTENDED_RESOURCE", "value": want.printed})
		assert.NotContains(t, containers[0].(map[string]any)["env"], "PRISM_NODE_CONFIG_MAP")
		rule := map[string]any{"apiGroups": []any{""}, "resources": []any{"nodes"}, "verbs": []any{"list"}}
		if rules := dig(t, rendered["ClusterRole/prism-controller"], "rules"); want.lists {
			assert.Contains(t, rules, rule)
		} else {
			assert.NotContains(t, rules, rule)
		}
	}
}

// TestChartController_NamesFromValues_NothingCreated: for names in the values the controller creates no class and reports nothing.
func TestChartController_NamesFromValues_NothingCreated(t *testing.T) {
	const config = "version: v1\nflags: {migStrategy: mixed}\n"
	rendered := parse(t, render(t, "--set", "deviceClasses.gpu.extendedResourceName=nvidia.com/gpu,deviceClasses.mig.extendedResources={1g.10gb,1g.10gb+me}"))
	var deployed []resourceapi.DeviceClass
	for _, object := range rendered {
		if object.GetKind() == "DeviceClass" {
			class := resourceapi.DeviceClass{}
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &class))
			deployed = append(deployed, class)
		}
	}
	plan, err := classes.NewPlan(classes.Input{
		Driver: "gpu.prism.dev", Configs: map[string]string{"a": config}, Classes: deployed, Profiles: []string{"1g.10gb", "1g.10gb+me", "2g.20gb"},
	})
	require.NoError(t, err)
	assert.Empty(t, plan.Problems)
	require.Len(t, plan.Classes, 3)
	assert.Equal(t, "nvidia.com/mig-2g.20gb", *plan.Classes[0].Spec.ExtendedResourceName)
	for _, class := range plan.Classes[1:] {
		assert.Nil(t, class.Spec.ExtendedResourceName, "%s has none beside the chart's class", class.Name)
	}
}
