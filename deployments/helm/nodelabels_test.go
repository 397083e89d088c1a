package helm

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/controller/labels"
)

const (
	nodesPolicy  = "prism-controller-nodes"
	labelBinding = "ClusterRoleBinding/prism-controller-nodelabels"
)

// TestChartNodeLabels_Values_ReachTheController, which only then has the right to write Nodes.
func TestChartNodeLabels_Values_ReachTheController(t *testing.T) {
	for set, want := range map[string]config.NodeLabels{
		"":                        {},
		"nodeLabels.enabled=true": {Enabled: true},
		"nodeLabels.enabled=true,nodeLabels.present=true":      {Enabled: true, Present: true},
		"nodeLabels.enabled=true,nodeLabels.devicePlugin=true": {Enabled: true, DevicePlugin: true},
		"nodeLabels.present=true,nodeLabels.devicePlugin=true": {},
	} {
		rendered := parse(t, render(t, "--set", set))
		env := map[string]string{}
		for _, variable := range dig(t, rendered["Deployment/prism-controller"], "spec", "template", "spec", "containers").([]any)[0].(map[string]any)["env"].([]any) {
			if value, given := variable.(map[string]any)["value"].(string); given {
				env[variable.(map[string]any)["name"].(string)] = value
			}
		}
		loaded, err := config.LoadController([]string{"--namespace=" + namespace}, func(name string) string { return env[name] })
		require.NoError(t, err)
		assert.Equal(t, want, loaded.NodeLabels, set)
		assert.Equal(t, want.Enabled, rendered[labelBinding] != nil, set)
		for name, object := range rendered {
			if !strings.HasPrefix(name, "ClusterRole/") {
				continue
			}
			for _, rule := range dig(t, object, "rules").([]any) {
				rule := rule.(map[string]any)
				if slices.Contains(rule["resources"].([]any), any("nodes")) && slices.Contains(rule["verbs"].([]any), any("patch")) {
					assert.Equal(t, "ClusterRole/"+labels.BindingName("prism-controller"), name, "only the role of the binding writes Nodes")
				}
			}
		}
	}
	_, complaint, err := template(t, "--set", "nodeLabels.enabled=true,controller.enabled=false")
	require.Error(t, err)
	assert.Contains(t, complaint, "nodeLabels.enabled needs the controller, which sets and removes the labels: set controller.enabled=true")
}

// TestChartNodeLabels_SwitchedOff_ControllerCleansUp: helm, Argo CD and Flux leave the binding, so the controller can remove the labels, and
// then the binding.
func TestChartNodeLabels_SwitchedOff_ControllerCleansUp(t *testing.T) {
	on, off := parse(t, render(t, "--set", "nodeLabels.enabled=true")), parse(t, render(t))
	require.NotNil(t, on[labelBinding])
	assert.Equal(t, map[string]string{
		"helm.sh/resource-policy": "keep", "argocd.argoproj.io/sync-options": "Prune=false", "kustomize.toolkit.fluxcd.io/prune": "disabled",
	}, on[labelBinding].GetAnnotations())
	require.Nil(t, off[labelBinding])
	role := dig(t, on[labelBinding], "roleRef", "name").(string)
	assert.Equal(t, on["ClusterRole/"+role].Object, off["ClusterRole/"+role].Object, "the kept binding still gives the right")
	assert.Contains(t, dig(t, off["ClusterRole/prism-controller"], "rules"), map[string]any{
		"apiGroups": []any{"rbac.authorization.k8s.io"}, "resources": []any{"clusterrolebindings"}, "verbs": []any{"get", "delete"}, "resourceNames": []any{role},
	})
	subject := dig(t, on[labelBinding], "subjects").([]any)[0].(map[string]any)
	assert.Equal(t, dig(t, off["Deployment/prism-controller"], "spec", "template", "spec", "serviceAccountName"), subject["name"])
}

// TestChartPolicy_Nodes_ManagedLabelsOnly: writes of the controller.
func TestChartPolicy_Nodes_ManagedLabelsOnly(t *testing.T) {
	on, off := parse(t, render(t, "--set", "nodeLabels.enabled=true")), parse(t, render(t))
	rules := newPolicy(t, on, nodesPolicy)
	assert.Equal(t, "Fail", rules.spec["failurePolicy"])
	assert.Equal(t, map[string]any{"matchPolicy": "Equivalent", "resourceRules": []any{map[string]any{
		"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE", "UPDATE", "DELETE"}, "resources": []any{"nodes"},
	}}}, rules.spec["matchConstraints"])
	const (
		user    = "system:serviceaccount:" + namespace + ":prism-controller"
		rest    = `, annotations: {a: b}, finalizers: [f], ownerReferences: [{kind: K, name: n}]}, spec: {podCIDR: 10.0.0.0/24}, status: {phase: Running}}`
		bare    = `{metadata: {name: n1, managedFields: [{manager: kubelet}]` + rest
		plain   = `{metadata: {name: n1, labels: {kubernetes.io/os: linux}` + rest
		counted = `{metadata: {name: n1, managedFields: [], labels: {kubernetes.io/os: linux, nvidia.com/gpu.count: "4"}` + rest
		eight   = `{metadata: {name: n1, labels: {kubernetes.io/os: linux, nvidia.com/gpu.count: "8"}` + rest

		elsewhere = "the controller may change only labels of Nodes"
		ofOS      = "the controller may not change label 'kubernetes.io/os' of Nodes"
		removes   = "the controller may only remove labels of Nodes while nodeLabels.enabled is false"
	)
	changed := func(from, to string) string {
		require.Contains(t, counted, from)
		return strings.Replace(counted, from, to, 1)
	}
	for name, c := range map[string]struct{ before, after, want, off string }{
		"label added":             {plain, counted, "", removes},
		"first label":             {bare, strings.Replace(counted, "kubernetes.io/os: linux, ", "", 1), "", removes},
		"label changed":           {counted, eight, "", removes},
		"label removed":           {counted, plain, "", ""},
		"last label removed":      {strings.Replace(counted, "kubernetes.io/os: linux, ", "", 1), bare, "", ""},
		"nothing changed":         {counted, counted, "", ""},
		"foreign label changed":   {counted, changed("os: linux", "os: windows"), ofOS, ofOS},
		"foreign label removed":   {counted, changed("kubernetes.io/os: linux, ", ""), ofOS, ofOS},
		"foreign label added":     {counted, changed("os: linux", "os: linux, nvidia.com/gpu.deploy.driver: 'true'"), "the controller may not change label 'nvidia.com/gpu.deploy.driver' of Nodes", "the controller may not change label 'nvidia.com/gpu.deploy.driver' of Nodes"},
		"annotation":              {counted, changed("a: b", "a: c"), elsewhere, elsewhere},
		"annotations removed":     {counted, changed(", annotations: {a: b}", ""), elsewhere, elsewhere},
		"finalizer":               {counted, changed("[f]", "[]"), elsewhere, elsewhere},
		"owner":                   {counted, changed("name: n}", "name: m}"), elsewhere, elsewhere},
		"spec":                    {counted, changed("10.0.0.0/24", "10.0.0.0/24, unschedulable: true"), elsewhere, elsewhere},
		"status":                  {counted, changed("Running", "Pending"), elsewhere, elsewhere},
		"label and spec together": {plain, changed("10.0.0.0/24", "10.0.0.0/24, taints: [{key: k}]"), elsewhere, removes},
	} {
		t.Run(name, func(t *testing.T) {
			for want, rules := range map[*string]*policy{&c.want: rules, &c.off: newPolicy(t, off, nodesPolicy)} {
				before, after := fields(t, c.before), fields(t, c.after)
				got, evaluated := rules.denies(map[string]any{"operation": "UPDATE", "userInfo": map[string]any{"username": user}}, after, before)
				assert.True(t, evaluated)
				assert.Equal(t, *want, got)
				_, evaluated = rules.denies(map[string]any{"operation": "UPDATE", "userInfo": map[string]any{"username": "system:node:n1"}}, after, before)
				assert.False(t, evaluated, "others are not concerned")
			}
		})
	}
	for operation, objects := range map[string][2]map[string]any{"CREATE": {fields(t, counted), nil}, "DELETE": {nil, fields(t, counted)}} {
		got, _ := rules.denies(map[string]any{"operation": operation, "userInfo": map[string]any{"username": user}}, objects[0], objects[1])
		assert.Equal(t, "the controller may neither create nor delete Nodes", got)
	}
	var allowed []string
	for _, key := range labels.Keys() {
		node := fields(t, strings.Replace(counted, "nvidia.com/gpu.count", key, 1))
		if got, _ := rules.denies(map[string]any{"operation": "UPDATE", "userInfo": map[string]any{"username": user}}, node, fields(t, plain)); got == "" {
			allowed = append(allowed, key)
		}
	}
	assert.Equal(t, labels.Keys(), allowed, "the policy allows every label of the controller")
	assert.Len(t, strings.Split(variableOf(t, rules, "managed"), ","), len(allowed), "and no others")
	assert.Nil(t, parse(t, render(t, "--set", "controller.enabled=false"))["ValidatingAdmissionPolicy/"+nodesPolicy])
}

// variableOf is the expression of a variable.
func variableOf(t *testing.T, p *policy, name string) string {
	t.Helper()
	for _, v := range p.spec["variables"].([]any) {
		if v := v.(map[string]any); v["name"] == name {
			return v["expression"].(string)
		}
	}
	require.Fail(t, "no variable "+name)
	return ""
}
