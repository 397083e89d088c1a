package helm

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionapi "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiadmission "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	celenv "k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

const byCapacityOf = "by-capacity.gpu.example.com"

// TestChartByCapacity_OlderKubernetes_NoClass: the class exists if the API server stores capacity requests, and never without its policy.
func TestChartByCapacity_OlderKubernetes_NoClass(t *testing.T) {
	for version, want := range map[string]bool{
		"1.35.0": false, "v1.35.4-eks-3025e55": false, "v1.35.99+k3s1": false,
		"1.36.0": true, "v1.36.0-alpha.1": true, "v1.36.1-gke.1044000": true, "v1.36.4+rke2r1": true, "1.37.1": true, "v1.40.0-eks-1": true,
	} {
		switches := []string{""}
		if version == kubernetes { // if the parts are rendered, each can be omitted
			switches = append(switches, "deviceClasses.create=false", "admissionPolicy.create=false")
		}
		for _, without := range switches {
			rendered := parse(t, render(t, "--set", "driverName=gpu.example.com,"+without, "--kube-version", version))
			for _, kind := range []string{"DeviceClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
				assert.Equal(t, want && without == "", rendered[kind+"/"+byCapacityOf] != nil, "%s of Kubernetes %s %s", kind, version, without)
			}
		}
	}
}

// TestChartByCapacity_Class_SelectsNothingItself: no expression is evaluated for it, and no resource name refers to it.
func TestChartByCapacity_Class_SelectsNothingItself(t *testing.T) {
	rendered := parse(t, render(t, "--set", "driverName=gpu.example.com"))
	assert.Empty(t, dig(t, rendered["DeviceClass/"+byCapacityOf], "spec"))
	binding := rendered["ValidatingAdmissionPolicyBinding/"+byCapacityOf]
	assert.Equal(t, byCapacityOf, dig(t, binding, "spec", "policyName"))
	assert.Equal(t, []any{"Deny"}, dig(t, binding, "spec", "validationActions"))
	spec := dig(t, rendered["ValidatingAdmissionPolicy/"+byCapacityOf], "spec").(map[string]any)
	assert.Equal(t, "Fail", spec["failurePolicy"])
	assert.Equal(t, map[string]any{"matchPolicy": "Equivalent", "resourceRules": []any{map[string]any{
		"apiGroups": []any{"resource.k8s.io"}, "apiVersions": []any{"v1"},
		"operations": []any{"CREATE"}, "resources": []any{"resourceclaims", "resourceclaimtemplates"},
	}}}, spec["matchConstraints"])
	assert.NotContains(t, spec, "matchConditions", "for every user, the scheduler too")
}

// policyExpression is one expression of a policy, a variable if it has a name.
type policyExpression struct {
	name, text string
	returns    *cel.Type
}

func (e *policyExpression) GetName() string          { return e.name }
func (e *policyExpression) GetExpression() string    { return e.text }
func (e *policyExpression) ReturnTypes() []*cel.Type { return []*cel.Type{e.returns} }

// apiServerPolicy compiles the policy of the class like the API server: its rules, and their messages.
func apiServerPolicy(t *testing.T) (rules, messages plugincel.ConditionEvaluator) {
	t.Helper()
	policy := &admissionapi.ValidatingAdmissionPolicy{}
	rendered := parse(t, render(t, "--set", "driverName=gpu.example.com"))
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(rendered["ValidatingAdmissionPolicy/"+byCapacityOf].Object, policy))
	declared := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	compiler, err := plugincel.NewCompositedCompiler(celenv.MustBaseEnvSet(celenv.DefaultCompatibilityVersion()))
	require.NoError(t, err)
	var variables []plugincel.NamedExpressionAccessor
	for _, v := range policy.Spec.Variables {
		variables = append(variables, &policyExpression{v.Name, v.Expression, cel.AnyType})
	}
	compiler.CompileAndStoreVariables(variables, declared, celenv.NewExpressions)
	var conditions, texts []plugincel.ExpressionAccessor
	for _, v := range policy.Spec.Validations {
		conditions = append(conditions, &policyExpression{"", v.Expression, cel.BoolType})
		texts = append(texts, &policyExpression{"", v.MessageExpression, cel.StringType})
	}
	rules = compiler.CompileCondition(conditions, declared, celenv.NewExpressions)
	messages = compiler.CompileCondition(texts, declared, celenv.NewExpressions)
	require.NoError(t, errors.Join(append(rules.CompilationErrors(), messages.CompilationErrors()...)...))
	return rules, messages
}

// byCapacityVerdict is the policy's message about a claim, or a template, with these devices; empty for none.
func byCapacityVerdict(t *testing.T, rules, messages plugincel.ConditionEvaluator, template bool, devices string) string {
	t.Helper()
	var spec resourceapi.ResourceClaimSpec
	require.NoError(t, yaml.UnmarshalStrict([]byte("devices: "+devices), &spec), devices)
	kind, resource := "ResourceClaim", "resourceclaims"
	var object runtime.Object = &resourceapi.ResourceClaim{Spec: spec}
	if template {
		kind, resource = "ResourceClaimTemplate", "resourceclaimtemplates"
		object = &resourceapi.ResourceClaimTemplate{Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec}}
	}
	gvk, gvr := resourceapi.SchemeGroupVersion.WithKind(kind), resourceapi.SchemeGroupVersion.WithResource(resource)
	attributes := &apiadmission.VersionedAttributes{
		Attributes:    apiadmission.NewAttributesRecord(object, nil, gvk, "ns", "n", gvr, "", apiadmission.Create, nil, false, nil),
		VersionedKind: gvk, VersionedObject: apiadmission.NewLazyObject(object),
	}
	budget := int64(celconfig.RuntimeCELCostBudget)
	evaluate := func(e plugincel.ConditionEvaluator) any {
		results, left, err := e.ForInput(t.Context(), attributes, plugincel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(gvr),
			metav1.GroupVersionKind(gvk)), plugincel.OptionalVariableBindings{}, nil, budget)
		require.NoError(t, err, devices)
		require.Len(t, results, 1)
		require.NoError(t, results[0].Error, devices)
		budget = left
		return results[0].EvalResult.Value()
	}
	if evaluate(rules) == true {
		return ""
	}
	return evaluate(messages).(string)
}

// TestChartByCapacityPolicy_WithoutCapacity_Refused: the message names the missing capacity; a selector of MIG devices of the driver is
// sufficient.
func TestChartByCapacityPolicy_WithoutCapacity_Refused(t *testing.T) {
	rules, messages := apiServerPolicy(t)
	const (
		ours    = "deviceClassName: by-capacity.gpu.example.com"
		profile = "capacity: {requests: {gpu.example.com/p1g10gb: '1'}}"
		refusal = `request 'b': class by-capacity.gpu.example.com selects MIG devices by capacity only; add capacity: {requests: ` +
			`{gpu.example.com/p1g10gb: 1}} for a profile or capacity: {requests: {gpu.example.com/migMemory: 19Gi}} for an amount of memory, ` +
			`or request class mig.gpu.example.com if the API server drops capacities (feature gate DRAConsumableCapacity)`
	)
	for devices, allowed := range map[string]bool{
		"{}":             true,
		"{requests: []}": true,
		"{requests: [{name: a, exactly: {deviceClassName: gpu.example.com}}]}":                                                                   true,
		"{requests: [{name: a, exactly: {deviceClassName: by-capacity.gpu.prism.dev}}]}":                                                         true,
		"{requests: [{name: a, exactly: {" + ours + ", " + profile + "}}]}":                                                                      true,
		"{requests: [{name: a, exactly: {" + ours + ", capacity: {requests: {gpu.example.com/migMemory: 19Gi}}}}]}":                              true,
		"{requests: [{name: a, exactly: {" + ours + ", capacity: {requests: {memory: 1Gi, gpu.example.com/migMemory: 19Gi}}}}]}":                 true,
		"{requests: [{name: a, firstAvailable: [{name: x, " + ours + ", " + profile + "}, {name: y, deviceClassName: other}]}]}":                 true,
		"{requests: [{name: b, exactly: {" + ours + "}}]}":                                                                                       false,
		"{requests: [{name: b, exactly: {" + ours + ", capacity: {}}}]}":                                                                         false,
		"{requests: [{name: b, exactly: {" + ours + ", capacity: {requests: {}}}}]}":                                                             false,
		"{requests: [{name: b, exactly: {" + ours + ", adminAccess: true, allocationMode: All}}]}":                                               false,
		"{requests: [{name: b, exactly: {" + ours + ", selectors: [{cel: {expression: 'true'}}]}}]}":                                             false,
		"{requests: [{name: b, exactly: {" + ours + ", capacity: {requests: {p1g10gb: '1', migMemory: 19Gi}}}}]}":                                false,
		"{requests: [{name: b, exactly: {" + ours + ", capacity: {requests: {gpu.example.com/memory: 19Gi}}}}]}":                                 false,
		"{requests: [{name: b, exactly: {" + ours + ", capacity: {requests: {nic.example.com/p1g10gb: '1'}}}}]}":                                 false,
		"{requests: [{name: b, exactly: {" + ours + ", capacity: {requests: {gpuXexample.com/migMemory: '1'}}}}]}":                               false,
		"{requests: [{name: a, exactly: {" + ours + ", " + profile + "}}, {name: b, exactly: {" + ours + "}}]}":                                  false,
		"{requests: [{name: b, firstAvailable: [{name: x, " + ours + ", " + profile + "}, {name: y, " + ours + "}]}]}":                           false,
		"{requests: [{name: b, firstAvailable: [{name: x, " + ours + ", capacity: {requests: {memory: 1Gi}}}, {name: y, deviceClassName: o}]}]}": false,
	} {
		for _, template := range []bool{false, true} {
			got := byCapacityVerdict(t, rules, messages, template, devices)
			if allowed {
				assert.Empty(t, got, devices)
				continue
			}
			assert.Equal(t, refusal, got, devices)
		}
	}
}

// TestChartByCapacityPolicy_LargestClaim_WithinBudget: the API server aborts a policy above its cost limit, and refuses the claim.
func TestChartByCapacityPolicy_LargestClaim_WithinBudget(t *testing.T) {
	rules, messages := apiServerPolicy(t)
	var capacities []string
	for range resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		capacities = append(capacities, strings.Repeat("n", 63-len(capacities))+"/"+strings.Repeat("c", 32)+": '1'")
	}
	sub := "{name: s, deviceClassName: " + byCapacityOf + ", capacity: {requests: {" + strings.Join(capacities, ", ") + ", gpu.example.com/migMemory: 1}}}"
	request := "{name: a, firstAvailable: [" + strings.TrimSuffix(strings.Repeat(sub+", ", resourceapi.FirstAvailableDeviceRequestMaxSize), ", ") + "]}"
	devices := "{requests: [" + strings.TrimSuffix(strings.Repeat(request+", ", resourceapi.DeviceRequestsMaxSize), ", ") + "]}"
	assert.Empty(t, byCapacityVerdict(t, rules, messages, false, devices))
}
