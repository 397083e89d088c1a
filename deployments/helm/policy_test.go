package helm

import (
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// policy is the rendered admission policy, evaluated like in the API server.
type policy struct {
	t    *testing.T
	env  *cel.Env
	spec map[string]any
}

// newPolicy returns the policy of that name.
func newPolicy(t *testing.T, rendered objects, name string) *policy {
	t.Helper()
	require.NotNil(t, rendered["ValidatingAdmissionPolicy/"+name], name)
	assert.Equal(t, name, dig(t, rendered["ValidatingAdmissionPolicyBinding/"+name], "spec", "policyName"))
	assert.Equal(t, []any{"Deny"}, dig(t, rendered["ValidatingAdmissionPolicyBinding/"+name], "spec", "validationActions"))
	env, err := cel.NewEnv(cel.OptionalTypes(), cel.Variable("request", cel.DynType), cel.Variable("object", cel.DynType),
		cel.Variable("oldObject", cel.DynType), cel.Variable("variables", cel.DynType))
	require.NoError(t, err)
	return &policy{t: t, env: env, spec: dig(t, rendered["ValidatingAdmissionPolicy/"+name], "spec").(map[string]any)}
}

func (p *policy) eval(expression any, input map[string]any) ref.Val {
	p.t.Helper()
	ast, issues := p.env.Compile(expression.(string))
	require.NoError(p.t, issues.Err(), expression)
	program, err := p.env.Program(ast)
	require.NoError(p.t, err)
	value, _, err := program.Eval(input)
	require.NoError(p.t, err, expression)
	return value
}

// denies returns the message of the first rule that fails, "" if the request is allowed, and whether the policy evaluated the request at
// all.
func (p *policy) denies(request, object, oldObject map[string]any) (string, bool) {
	p.t.Helper()
	variables := map[string]any{}
	input := map[string]any{"request": request, "object": object, "oldObject": oldObject, "variables": variables}
	for _, condition := range p.spec["matchConditions"].([]any) {
		if p.eval(condition.(map[string]any)["expression"], input).Value() != true {
			return "", false
		}
	}
	for _, variable := range p.spec["variables"].([]any) {
		variable := variable.(map[string]any)
		variables[variable["name"].(string)] = p.eval(variable["expression"], input)
	}
	for _, rule := range p.spec["validations"].([]any) {
		rule := rule.(map[string]any)
		if p.eval(rule["expression"], input).Value() == true {
			continue
		}
		if message, ok := rule["message"].(string); ok {
			return message, true
		}
		return p.eval(rule["messageExpression"], input).Value().(string), true
	}
	return "", true
}

// slicesPolicy is the name of the policy for ResourceSlices.
const slicesPolicy = "prism-kubelet-plugin-resourceslices"

func slice(node, driver string) map[string]any { return sliceOfPool(node, driver, "n0") }

func sliceOfPool(node, driver, pool string) map[string]any {
	spec := map[string]any{"driver": driver, "pool": map[string]any{"name": pool, "generation": 1, "resourceSliceCount": 1}}
	if node != "" {
		spec["nodeName"] = node
	}
	return map[string]any{"spec": spec}
}

// TestChartPolicy_ForeignWrites_Denied writes ResourceSlices as the plugin of node n0 and as others.
func TestChartPolicy_ForeignWrites_Denied(t *testing.T) {
	const driver = "gpu.example.com"
	rendered := parse(t, render(t, "--set", "driverName="+driver))
	rules := newPolicy(t, rendered, slicesPolicy)
	bound := map[string]any{"authentication.kubernetes.io/node-name": []any{"n0"}}
	plugin := account(t, rendered)
	for name, test := range map[string]struct {
		user  string
		extra map[string]any
		slice map[string]any
		want  string
		free  bool
	}{
		"own node":         {plugin, bound, slice("n0", driver), "", false},
		"other node":       {plugin, bound, slice("n1", driver), "the plugin of node 'n0' may not write ResourceSlices of node 'n1'", false},
		"whole cluster":    {plugin, bound, slice("", driver), "the plugin of node 'n0' may not write ResourceSlices of the whole cluster", false},
		"other driver":     {plugin, bound, slice("n0", "gpu.nvidia.com"), "the plugin of driver 'gpu.example.com' may not write ResourceSlices of driver 'gpu.nvidia.com'", false},
		"token of no node": {plugin, nil, slice("n0", driver), "the token of this user is not bound to a node; use the token of a pod on the node whose ResourceSlices are written", false},
		"token without":    {plugin, map[string]any{"a": []any{"n0"}}, slice("n0", driver), "the token of this user is not bound to a node; use the token of a pod on the node whose ResourceSlices are written", false},
		"token with none":  {plugin, map[string]any{"authentication.kubernetes.io/node-name": []any{}}, slice("n0", driver), "the token of this user is not bound to a node; use the token of a pod on the node whose ResourceSlices are written", false},
		"other account":    {"system:serviceaccount:" + namespace + ":default", bound, slice("n1", driver), "", true},
		"administrator":    {"admin", nil, slice("n1", "gpu.nvidia.com"), "", true},
	} {
		for _, operation := range []string{"CREATE", "UPDATE", "DELETE"} {
			t.Run(name+" "+operation, func(t *testing.T) {
				user := map[string]any{"username": test.user}
				if test.extra != nil {
					user["extra"] = test.extra
				}
				object, old, want := test.slice, map[string]any(nil), test.want
				switch operation {
				case "UPDATE":
					old = test.slice
				case "DELETE":
					object, old = nil, test.slice
					if name == "other driver" {
						want = "" // the driver's name may have changed
					}
				}
				got, looked := rules.denies(map[string]any{"operation": operation, "userInfo": user}, object, old)
				assert.Equal(t, want, got)
				assert.Equal(t, !test.free, looked)
			})
		}
	}
}

// TestChartPolicy_PoolOfAnotherNode_Denied: the scheduler combines all devices of a pool, whatever node their ResourceSlices name. A node
// can delete its earlier ResourceSlices in a foreign pool.
func TestChartPolicy_PoolOfAnotherNode_Denied(t *testing.T) {
	const driver = "gpu.example.com"
	rendered := parse(t, render(t, "--set", "driverName="+driver))
	rules := newPolicy(t, rendered, slicesPolicy)
	plugin := account(t, rendered)
	for _, test := range []struct {
		node, pool string
		allowed    bool
	}{
		{"n1", "n1", true},
		{"n1", "n1/gpu-3f2a9c1b", true},
		{"n1", "n1/probe", true},
		{"n1", "n10", false},
		{"n1", "n10/gpu-3f2a9c1b", false},
		{"n1", "n1-gpu", false},
		{"n1", "n1.example.com", false},
		{"n1", "n1.example.com/gpu-3f2a9c1b", false},
		{"n1", "n0", false},
		{"n1", "n0/n1", false},
		{"n1", "n0/n1/gpu-3f2a9c1b", false},
		{"n1", "", false},
		{"n10", "n1", false},
		{"n10", "n1/gpu-3f2a9c1b", false},
		{"n1.example.com", "n1.example.com/gpu-3f2a9c1b", true},
		{"n1.example.com", "n1xexample.com/gpu-3f2a9c1b", false},
	} {
		for _, operation := range []string{"CREATE", "UPDATE", "DELETE"} {
			t.Run(test.node+" "+test.pool+" "+operation, func(t *testing.T) {
				object := sliceOfPool(test.node, driver, test.pool)
				var old map[string]any
				want := "the plugin of node '" + test.node + "' may not write ResourceSlices of pool '" + test.pool + "'"
				switch operation {
				case "UPDATE":
					old = object
				case "DELETE":
					object, old, want = nil, object, ""
				}
				if test.allowed {
					want = ""
				}
				user := map[string]any{"username": plugin, "extra": map[string]any{"authentication.kubernetes.io/node-name": []any{test.node}}}
				got, looked := rules.denies(map[string]any{"operation": operation, "userInfo": user}, object, old)
				assert.True(t, looked)
				assert.Equal(t, want, got)
			})
		}
	}
}

// TestChartPolicy_Rules_CoverEveryWriteAndVersion of ResourceSlices.
func TestChartPolicy_Rules_CoverEveryWriteAndVersion(t *testing.T) {
	spec := newPolicy(t, parse(t, render(t)), slicesPolicy).spec
	assert.Equal(t, "Fail", spec["failurePolicy"])
	assert.Equal(t, map[string]any{"resourceRules": []any{map[string]any{
		"apiGroups": []any{"resource.k8s.io"}, "apiVersions": []any{"v1", "v1beta2", "v1beta1", "v1alpha3"},
		"operations": []any{"CREATE", "UPDATE", "DELETE"}, "resources": []any{"resourceslices"},
	}}}, spec["matchConstraints"])
}

// TestChartPolicy_LeaseOfAnother_Denied: a plugin announces the reports of its own node, and can write neither a leader's Lease nor another
// node's.
func TestChartPolicy_LeaseOfAnother_Denied(t *testing.T) {
	rendered := parse(t, render(t, "--set", tools+",driverName=gpu.example.com"))
	const name = "prism-kubelet-plugin-leases"
	rules := newPolicy(t, rendered, name)
	assert.Equal(t, []any{map[string]any{
		"apiGroups": []any{"coordination.k8s.io"}, "apiVersions": []any{"*"}, "operations": []any{"CREATE", "UPDATE", "DELETE"}, "resources": []any{"leases"},
	}}, dig(t, rendered["ValidatingAdmissionPolicy/"+name], "spec", "matchConstraints", "resourceRules"))
	const plugin = "system:serviceaccount:" + namespace + ":prism-kubelet-plugin"
	const others = "the plugin of node 'n1' may write Lease 'gpu.example.com.n1' only"
	bound := map[string]any{"authentication.kubernetes.io/node-name": []any{"n1"}}
	for _, c := range []struct {
		user  string
		extra map[string]any
		lease string
		want  string
		free  bool
	}{
		{plugin, bound, "gpu.example.com.n1", "", false},
		{plugin, bound, "gpu.example.com.n10", others, false},
		{plugin, bound, "gpuxexample.com.n1", others, false},
		{plugin, bound, "prism-controller", others, false},
		{plugin, bound, "", others, false}, // of generateName
		{plugin, map[string]any{}, "gpu.example.com.", "the token of this user is not bound to a node; use the token of a pod on the node that keeps reports", false},
		{"system:serviceaccount:" + namespace + ":prism-controller", bound, "prism-controller", "", true},
	} {
		for _, operation := range []string{"CREATE", "UPDATE", "DELETE"} {
			lease := map[string]any{"metadata": map[string]any{"name": c.lease}}
			if c.lease == "" {
				lease = map[string]any{"metadata": map[string]any{"generateName": "gpu.example.com.n1"}}
			}
			object, old := lease, lease
			if operation == "DELETE" {
				object = nil
			}
			got, evaluated := rules.denies(map[string]any{"operation": operation, "userInfo": map[string]any{"username": c.user, "extra": c.extra}}, object, old)
			assert.Equal(t, c.want, got, "%s %s", operation, c.lease)
			assert.Equal(t, !c.free, evaluated)
		}
	}
	// Of an earlier driver name: its own node may delete it.
	for _, c := range []struct {
		operation, node, label string
		denied                 bool
	}{
		{"DELETE", "n1", "profiles.gpu.prism.dev/driver", false}, {"DELETE", "n10", "profiles.gpu.prism.dev/driver", true},
		{"DELETE", "n1", "other", true}, {"UPDATE", "n1", "profiles.gpu.prism.dev/driver", true},
	} {
		lease := fields(t, "{metadata: {name: gpu.prism.dev."+c.node+", labels: {"+c.label+": gpu.prism.dev}, ownerReferences: [{apiVersion: v1, kind: Node, name: "+c.node+"}]}}")
		object := lease
		if c.operation == "DELETE" {
			object = nil
		}
		got, _ := rules.denies(map[string]any{"operation": c.operation, "userInfo": map[string]any{"username": plugin, "extra": bound}}, object, lease)
		assert.Equal(t, c.denied, got != "", "%v: %s", c, got)
	}
}
