package admission

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionapi "k8s.io/api/admission/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"
)

const (
	bad      = `{apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig, memory: 8Gi}`
	sentence = `opaque.parameters: request "r": GPUConfig: unknown field "memory"; valid fields: kind, apiVersion, sharing, enforceMemory, claimOverride`
	forbids  = `{apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig, sharing: {strategy: TimeSlicing}, claimOverride: Forbidden}`
)

// devices are a claim's: one request, and a configuration for a driver.
func devices(class, driver, parameters string) string {
	return `{devices: {requests: [{name: r, exactly: {deviceClassName: ` + class + `}}], config: [{requests: [r], opaque: {driver: ` + driver +
		`, parameters: ` + parameters + `}}]}}`
}

// asked is the API server's question about an object.
func asked(t *testing.T, operation admissionapi.Operation, kind, object string) admission.Request {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(object))
	require.NoError(t, err)
	req := admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{
		UID: "1", Operation: operation, Kind: metav1.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: kind},
	}}
	if operation == admissionapi.Delete {
		req.OldObject.Raw = raw
	} else {
		req.Object.Raw = raw
	}
	return req
}

// judge has a cluster with a class that claims may not override.
func newJudge(t *testing.T) *OpaqueConfig {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, resourceapi.AddToScheme(scheme))
	locked := &resourceapi.DeviceClass{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(`{metadata: {name: locked}, spec: {config: [{opaque: {driver: gpu.prism.dev, parameters: `+forbids+`}}]}}`), locked))
	return &OpaqueConfig{Driver: "gpu.prism.dev", Classes: fake.NewClientBuilder().WithScheme(scheme).WithObjects(locked).Build()}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	judge := newJudge(t)
	for name, c := range map[string]struct{ kind, object, want string }{
		"claim":    {"ResourceClaim", `{spec: ` + devices("gpu.prism.dev", "gpu.prism.dev", bad) + `}`, "spec.devices.config[0]." + sentence},
		"template": {"ResourceClaimTemplate", `{spec: {spec: ` + devices("gpu.prism.dev", "gpu.prism.dev", bad) + `}}`, "spec.spec.devices.config[0]." + sentence},
		"class": {
			"DeviceClass", `{spec: {config: [{opaque: {driver: gpu.prism.dev, parameters: {apiVersion: gpu.prism.dev/v1, kind: GPUConfig}}}]}}`,
			`spec.config[0].opaque.parameters: apiVersion: unsupported value "gpu.prism.dev/v1"; supported values: gpu.prism.dev/v1alpha1`,
		},
		"claim of a class that forbids it": {
			"ResourceClaim", `{spec: ` + devices("locked", "gpu.prism.dev", `{apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig, enforceMemory: false}`) + `}`,
			`spec.devices.config[0].opaque.parameters: request "r": GPUConfig: enforceMemory: must not be set by the claim: the DeviceClass has ` +
				`claimOverride Forbidden; remove it or use another class`,
		},
		"two mistakes": {
			"DeviceClass", `{spec: {config: [{opaque: {driver: gpu.prism.dev, parameters: {kind: GPUConfig}}}, {opaque: {driver: gpu.prism.dev, parameters: {}}}]}}`,
			`spec.config[0].opaque.parameters: apiVersion: required and must be a string; supported values: gpu.prism.dev/v1alpha1; spec.config[1].opaque.parameters: apiVersion: ` +
				`required and must be a string; supported values: gpu.prism.dev/v1alpha1; kind: required and must be a string; supported values: GPUConfig, GPUMetricsConfig, ProfilerConfig`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := judge.Handle(t.Context(), asked(t, admissionapi.Create, c.kind, c.object))
			assert.False(t, answer.Allowed)
			assert.Equal(t, &metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: c.want}, answer.Result)
		})
	}
}

func TestPasses(t *testing.T) {
	t.Parallel()
	judge := newJudge(t)
	claim := `{spec: ` + devices("gpu.prism.dev", "gpu.prism.dev", bad) + `}`
	passes := map[string]admission.Request{
		"good": asked(t, admissionapi.Create, "ResourceClaim",
			`{spec: `+devices("gpu.prism.dev", "gpu.prism.dev", `{apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig}`)+`}`),
		"another driver":  asked(t, admissionapi.Create, "ResourceClaim", `{spec: `+devices("tpu", "tpu.example.com", bad)+`}`),
		"unknown class":   asked(t, admissionapi.Create, "ResourceClaim", `{spec: `+devices("none", "gpu.prism.dev", `{apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig}`)+`}`),
		"nothing in it":   asked(t, admissionapi.Create, "DeviceClass", `{spec: {}}`),
		"deletion":        asked(t, admissionapi.Delete, "ResourceClaim", claim),
		"another kind":    asked(t, admissionapi.Create, "ResourceSlice", claim),
		"another version": asked(t, admissionapi.Create, "ResourceClaim", claim),
		"status":          asked(t, admissionapi.Update, "ResourceClaim", claim),
	}
	older := passes["another version"]
	older.Kind.Version = "v1beta1"
	passes["another version"] = older
	status := passes["status"]
	status.SubResource, status.OldObject = "status", status.Object
	passes["status"] = status
	for name, req := range passes {
		answer := judge.Handle(t.Context(), req)
		assert.True(t, answer.Allowed, "%s: %v", name, answer.Result)
	}
}

// What was written before there was admission is changed and deleted as ever, as long as its spec stays.
func TestOldObjects(t *testing.T) {
	t.Parallel()
	judge := newJudge(t)
	for kind, spec := range map[string]string{
		"ResourceClaim":         devices("gpu.prism.dev", "gpu.prism.dev", bad),
		"ResourceClaimTemplate": `{spec: ` + devices("gpu.prism.dev", "gpu.prism.dev", bad) + `}`,
		"DeviceClass":           `{config: [{opaque: {driver: gpu.prism.dev, parameters: ` + bad + `}}]}`,
	} {
		req := asked(t, admissionapi.Update, kind, `{metadata: {labels: {a: b}}, spec: `+spec+`}`)
		req.OldObject = asked(t, admissionapi.Create, kind, `{spec: `+spec+`}`).Object
		assert.True(t, judge.Handle(t.Context(), req).Allowed, kind)
		req.OldObject = asked(t, admissionapi.Create, kind, `{spec: {}}`).Object
		assert.False(t, judge.Handle(t.Context(), req).Allowed, "%s that becomes bad", kind)
	}
}

// unready is a cache that has not seen anything yet.
type unready struct{ client.Reader }

func (unready) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// A class that is not known in time is not judged by; everything else is.
func TestUnreadyClasses(t *testing.T) {
	t.Parallel()
	judge := &OpaqueConfig{Driver: "gpu.prism.dev", Classes: unready{}}
	good := `{apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig}`
	assert.True(t, judge.Handle(t.Context(), asked(t, admissionapi.Create, "ResourceClaim", `{spec: `+devices("locked", "gpu.prism.dev", good)+`}`)).Allowed)
	assert.False(t, judge.Handle(t.Context(), asked(t, admissionapi.Create, "ResourceClaim", `{spec: `+devices("locked", "gpu.prism.dev", bad)+`}`)).Allowed)
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	answer := newJudge(t).Handle(t.Context(), admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{
		Operation: admissionapi.Create, Kind: metav1.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaim"},
		Object: runtime.RawExtension{Raw: json.RawMessage(`[]`)},
	}})
	assert.False(t, answer.Allowed)
	assert.Contains(t, answer.Result.Message, "reading the ResourceClaim: ")
}
