package classes

import (
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// verdict evaluates the policy on the spec of a pod like the API server, and returns the first message, empty if the pod is allowed.
func verdict(t *testing.T, spec string, resources ...string) string {
	t.Helper()
	env, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).NewExpressionsEnv().Extend(
		cel.Variable("object", cel.DynType), cel.Variable("variables", cel.DynType))
	require.NoError(t, err)
	var pod map[string]any
	require.NoError(t, yaml.Unmarshal([]byte("spec: "+spec), &pod))
	variables := map[string]any{}
	eval := func(expression string) ref.Val {
		ast, issues := env.Compile(expression)
		require.NoError(t, issues.Err(), expression)
		program, err := env.Program(ast)
		require.NoError(t, err)
		value, _, err := program.Eval(map[string]any{"object": pod, "variables": variables})
		require.NoError(t, err, expression)
		return value
	}
	policy, _ := newPolicy("shared-requests.x", driver, resources)
	require.NotNil(t, policy)
	for _, variable := range policy.Spec.Variables {
		variables[variable.Name] = eval(variable.Expression)
	}
	for _, rule := range policy.Spec.Validations {
		if eval(rule.Expression).Value() == true {
			continue
		}
		message, ok := eval(rule.MessageExpression).Value().(string)
		require.True(t, ok)
		return message
	}
	return ""
}

// The message is the same as in NVIDIA's device plugin.
func TestNewPolicy_Pods_SeveralSharesDenied(t *testing.T) {
	const (
		text  = "request for 'nvidia.com/gpu-2gb: 2' too large: maximum request size for shared resources is 1"
		two   = "{name: b, resources: {limits: {nvidia.com/gpu-2gb: '2'}}}"
		one   = "{name: c, resources: {limits: {cpu: '4', nvidia.com/gpu-2gb: '1'}}}"
		plain = "{name: a}"
	)
	for spec, want := range map[string]string{
		"{containers: [" + two + "]}":                                                          text,
		"{containers: [" + plain + ", " + one + ", " + two + "]}":                              text,
		"{containers: [" + plain + "], initContainers: [" + two + "]}":                         text,
		"{containers: [" + one + ", " + one + "], initContainers: [" + plain + "]}":            "",
		"{containers: [{name: a, resources: {}}]}":                                             "",
		"{containers: [{name: a, resources: {requests: {cpu: '2'}}}]}":                         "",
		"{containers: [{name: a, resources: {limits: {nvidia.com/gpu: '8'}}}]}":                "",
		"{containers: [{name: a, resources: {limits: {nvidia.com/gpu-2gb: 2k}}}]}":             strings.Replace(text, "2' too", "2k' too", 1),
		"{containers: [{name: a, resources: {limits: {nvidia.com/gpu.shared: '3'}}}]}":         strings.NewReplacer("gpu-2gb", "gpu.shared", "2'", "3'").Replace(text),
		"{containers: [{name: a, resources: {limits: {nvidia.com/gpu-2gb.of.another: '2'}}}]}": "",
	} {
		assert.Equal(t, want, verdict(t, spec, "nvidia.com/gpu-2gb", "nvidia.com/gpu.shared"), spec)
	}
}

func TestNewPolicy_NoResources_Nil(t *testing.T) {
	policy, binding := newPolicy("shared-requests.x", driver, nil)
	assert.Nil(t, policy)
	assert.Nil(t, binding)
}
