package helm

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionapi "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celenv "k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// fields parses YAML into the form that the API server passes to a policy.
func fields(t *testing.T, text string) map[string]any {
	t.Helper()
	var read map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &read), text)
	return read
}

// TestChartPolicies_Expressions_CompiledByTheAPIServer: a policy with failurePolicy Fail and an expression that does not compile denies everything.
func TestChartPolicies_Expressions_CompiledByTheAPIServer(t *testing.T) {
	compiled := 0
	for name, object := range parse(t, render(t, "--set", "driverName=gpu.example.com")) {
		if !strings.HasPrefix(name, "ValidatingAdmissionPolicy/") {
			continue
		}
		policy := &admissionapi.ValidatingAdmissionPolicy{}
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, policy, true))
		compiler, err := plugincel.NewCompositedCompiler(celenv.MustBaseEnvSet(celenv.DefaultCompatibilityVersion()))
		require.NoError(t, err)
		declared := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
		var expressions []plugincel.ExpressionAccessor
		for _, c := range policy.Spec.MatchConditions {
			expressions = append(expressions, &policyExpression{"", c.Expression, cel.BoolType})
		}
		for _, v := range policy.Spec.Variables {
			compiler.CompileAndStoreVariables([]plugincel.NamedExpressionAccessor{&policyExpression{v.Name, v.Expression, cel.AnyType}}, declared, celenv.NewExpressions)
		}
		for _, v := range policy.Spec.Validations {
			expressions = append(expressions, &policyExpression{"", v.Expression, cel.BoolType})
			if v.MessageExpression != "" {
				expressions = append(expressions, &policyExpression{"", v.MessageExpression, cel.StringType})
			}
		}
		require.NoError(t, errors.Join(compiler.CompileCondition(expressions, declared, celenv.NewExpressions).CompilationErrors()...), name)
		compiled++
	}
	assert.Equal(t, 5, compiled)
}

// TestChartPolicy_ClaimStatus_OwnEntriesOfOwnNodeOnly: writes of node n0's plugin to the status of a claim.
func TestChartPolicy_ClaimStatus_OwnEntriesOfOwnNodeOnly(t *testing.T) {
	rendered := parse(t, render(t, "--set", "driverName=gpu.example.com"))
	rules := newPolicy(t, rendered, "prism-kubelet-plugin-claimstatus")
	assert.Equal(t, "Fail", rules.spec["failurePolicy"])
	assert.Equal(t, map[string]any{"matchPolicy": "Equivalent", "resourceRules": []any{map[string]any{
		"apiGroups": []any{"resource.k8s.io"}, "apiVersions": []any{"v1"}, "operations": []any{"UPDATE"}, "resources": []any{"resourceclaims/status"},
	}}}, rules.spec["matchConstraints"])
	const (
		ours    = `{driver: gpu.example.com, pool: n0/gpu-1, device: a}`
		whole   = `{driver: gpu.example.com, pool: n0, device: a}`
		theirs  = `{driver: nic.example.com, pool: n0, device: b}`
		foreign = `{driver: gpu.example.com, pool: n01, device: a}`
		entry   = `{driver: gpu.example.com, pool: n0, device: a, data: {}}`
		other   = `{driver: nic.example.com, pool: n0, device: b, data: {}}`

		notHere  = "the plugin of node 'n0' may not write the status of a claim without devices of driver 'gpu.example.com' on that node"
		drivers  = "the plugin of driver 'gpu.example.com' may not write status.devices of other drivers"
		schedule = "a plugin may not change status.allocation or status.reservedFor of a claim"
	)
	allocated := func(results, devices string) string {
		return `{status: {allocation: {devices: {results: [` + results + `]}}, reservedFor: [{name: p}], devices: [` + devices + `]}}`
	}
	for name, c := range map[string]struct{ before, after, want string }{
		"first entry":               {`{status: {allocation: {devices: {results: [` + whole + `]}}}}`, `{status: {allocation: {devices: {results: [` + whole + `]}}, devices: [` + entry + `]}}`, ""},
		"device in a pool of a GPU": {allocated(ours, ""), allocated(ours, entry), ""},
		"beside another driver":     {allocated(ours+", "+theirs, other), allocated(ours+", "+theirs, entry+", "+other), ""},
		"own entry removed":         {allocated(ours, entry), allocated(ours, ""), ""},
		"not allocated":             {`{spec: {}}`, `{status: {devices: [` + entry + `]}}`, notHere},
		"of another node":           {allocated(foreign, ""), allocated(foreign, entry), notHere},
		"of another driver":         {allocated(theirs, ""), allocated(theirs, entry), notHere},
		"entry of another driver":   {allocated(ours+", "+theirs, ""), allocated(ours+", "+theirs, other), drivers},
		"removes one":               {allocated(ours+", "+theirs, other), allocated(ours+", "+theirs, entry), drivers},
		"allocates":                 {`{status: {}}`, allocated(ours, entry), notHere},
		"allocates more":            {allocated(ours, ""), allocated(ours+", "+whole, entry), schedule},
		"deallocates":               {allocated(ours, ""), `{status: {reservedFor: [{name: p}]}}`, schedule},
		"reserves":                  {allocated(ours, ""), strings.Replace(allocated(ours, ""), "{name: p}", "{name: p}, {name: q}", 1), schedule},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := fields(t, c.before), fields(t, c.after)
			bound := map[string]any{"username": account(t, rendered), "extra": map[string]any{"authentication.kubernetes.io/node-name": []any{"n0"}}}
			got, looked := rules.denies(map[string]any{"operation": "UPDATE", "userInfo": bound}, after, before)
			assert.True(t, looked)
			assert.Equal(t, c.want, got)
			got, _ = rules.denies(map[string]any{"operation": "UPDATE", "userInfo": map[string]any{"username": account(t, rendered)}}, after, before)
			assert.Contains(t, got, "the token of this user is not bound to a node")
			_, looked = rules.denies(map[string]any{"operation": "UPDATE", "userInfo": map[string]any{"username": "system:kube-scheduler"}}, after, before)
			assert.False(t, looked, "others are not concerned")
		})
	}
}

// TestChartPolicy_DeviceClasses_ManagedOnesOnly: writes of the controller.
func TestChartPolicy_DeviceClasses_ManagedOnesOnly(t *testing.T) {
	rendered := parse(t, render(t, "--set", "driverName=gpu.example.com"))
	rules := newPolicy(t, rendered, "prism-controller-deviceclasses")
	assert.Equal(t, "Fail", rules.spec["failurePolicy"])
	assert.Equal(t, map[string]any{"matchPolicy": "Equivalent", "resourceRules": []any{map[string]any{
		"apiGroups": []any{"resource.k8s.io"}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE", "UPDATE", "DELETE"}, "resources": []any{"deviceclasses"},
	}}}, rules.spec["matchConstraints"])
	class := func(name, labels string) map[string]any {
		if labels == "" {
			return fields(t, "{metadata: {name: "+name+"}}")
		}
		return fields(t, "{metadata: {name: "+name+", labels: {"+labels+"}}}")
	}
	const (
		managed = "app.kubernetes.io/managed-by: prism-controller, prism.dev/driver: gpu.example.com"
		chart   = "app.kubernetes.io/managed-by: Helm"
		another = "app.kubernetes.io/managed-by: prism-controller, prism.dev/driver: gpu.prism.dev"
		lacks   = ", which lacks the labels app.kubernetes.io/managed-by: prism-controller and prism.dev/driver: gpu.example.com"
	)
	user := "system:serviceaccount:" + namespace + ":" + rendered["Deployment/prism-controller"].GetName()
	for _, c := range []struct{ name, before, after, lacking string }{
		{"mig-1g-10gb.gpu.example.com", managed, managed, ""},
		{"mig-1g-10gb.gpu.example.com", "", managed, lacks}, // taken over
		{"mig-1g-10gb.gpu.example.com", managed, "", lacks},
		{"mig.gpu.example.com", chart, chart, lacks},
		{"mig.gpu.example.com", another, another, lacks},
		{"nic.example.com", managed, managed, ", whose name does not end with .gpu.example.com"},
		{"xgpu.example.com", managed, managed, ", whose name does not end with .gpu.example.com"},
	} {
		want := ""
		if c.lacking != "" {
			want = "the controller of driver 'gpu.example.com' may not write DeviceClass '" + c.name + "'" + c.lacking
		}
		before, after := class(c.name, c.before), class(c.name, c.after)
		decide := func(operation, user string, object, old map[string]any) (string, bool) {
			return rules.denies(map[string]any{"operation": operation, "userInfo": map[string]any{"username": user}}, object, old)
		}
		got, looked := decide("UPDATE", user, after, before)
		assert.True(t, looked)
		assert.Equal(t, want, got, c)
		if c.before == c.after {
			got, _ = decide("CREATE", user, after, nil)
			assert.Equal(t, want, got, c)
			got, _ = decide("DELETE", user, nil, before)
			assert.Equal(t, want, got, c)
		}
		_, looked = decide("DELETE", "admin", nil, before)
		assert.False(t, looked)
	}
	// Created by this release under another driver name: it may only be deleted.
	const name = "mig-1g-10gb.gpu.prism.dev"
	owner := func(role string) string {
		return "{metadata: {name: " + name + ", labels: {" + another + "}, ownerReferences: [{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, name: " + role + "}]}}"
	}
	for _, c := range []struct {
		operation, before, after string
		denied                   bool
	}{
		{"DELETE", owner("prism-controller"), "", false},
		{"DELETE", owner("other-controller"), "", true},
		{"UPDATE", owner("prism-controller"), owner("prism-controller"), true},
		{"CREATE", "", owner("prism-controller"), true},
	} {
		var before, after map[string]any
		if c.before != "" {
			before = fields(t, c.before)
		}
		if c.after != "" {
			after = fields(t, c.after)
		}
		got, _ := rules.denies(map[string]any{"operation": c.operation, "userInfo": map[string]any{"username": user}}, after, before)
		assert.Equal(t, c.denied, got != "", "%v: %s", c, got)
	}
	assert.Nil(t, parse(t, render(t, "--set", "controller.enabled=false"))["ValidatingAdmissionPolicy/prism-controller-deviceclasses"])
}
