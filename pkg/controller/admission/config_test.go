package admission

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionapi "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"
)

const (
	invalid  = `{apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig, memory: 8Gi}`
	message  = `opaque.parameters: request "r": GPUConfig: unknown field "memory"; valid fields: kind, apiVersion, sharing, enforceMemory, claimOverride`
	counters = `{apiVersion: gpu.prism.dev/v1alpha1, kind: GPUMetricsConfig, source: NsightSystems}`
	forbids  = `{apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig, sharing: {strategy: TimeSlicing}, claimOverride: Forbidden}`
)

// devices is the spec of a claim with one request and one configuration for a driver.
func devices(class, driver, parameters string) string {
	return `{devices: {requests: [{name: r, exactly: {deviceClassName: ` + class + `}}], config: [{requests: [r], opaque: {driver: ` + driver +
		`, parameters: ` + parameters + `}}]}}`
}

// review is the API server's request about an object.
func review(t *testing.T, operation admissionapi.Operation, kind, object string) admission.Request {
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

// newHandler returns a handler for a cluster with the DeviceClass "locked", which forbids overrides by claims.
func newHandler(t *testing.T) *OpaqueConfig {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, resourceapi.AddToScheme(scheme))
	locked := &resourceapi.DeviceClass{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(`{metadata: {name: locked}, spec: {config: [{opaque: {driver: gpu.prism.dev, parameters: `+forbids+`}}]}}`), locked))
	return &OpaqueConfig{Driver: "gpu.prism.dev", Classes: fake.NewClientBuilder().WithScheme(scheme).WithObjects(locked).Build()}
}

func TestHandle_InvalidConfig_Denied(t *testing.T) {
	t.Parallel()
	handler := newHandler(t)
	for name, c := range map[string]struct{ kind, object, want string }{
		"claim":    {"ResourceClaim", `{spec: ` + devices("gpu.prism.dev", "gpu.prism.dev", invalid) + `}`, "spec.devices.config[0]." + message},
		"template": {"ResourceClaimTemplate", `{spec: {spec: ` + devices("gpu.prism.dev", "gpu.prism.dev", invalid) + `}}`, "spec.spec.devices.config[0]." + message},
		"class": {
			"DeviceClass", `{spec: {config: [{opaque: {driver: gpu.prism.dev, parameters: {apiVersion: gpu.prism.dev/v1, kind: GPUConfig}}}]}}`,
			`spec.config[0].opaque.parameters: apiVersion: unsupported value "gpu.prism.dev/v1"; supported values: gpu.prism.dev/v1alpha1`,
		},
		"claim of a class that forbids it": {
			"ResourceClaim", `{spec: ` + devices("locked", "gpu.prism.dev", `{apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig, enforceMemory: false}`) + `}`,
			`spec.devices.config[0].opaque.parameters: request "r": GPUConfig: enforceMemory: must not be set by the claim: claimOverride of ` +
				`the DeviceClass is Forbidden; remove it or use another class`,
		},
		"MPS shares of several GPUs": {
			"ResourceClaimTemplate", `{spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: mps.gpu.prism.dev, allocationMode: ExactCount, count: 2}}]}}}}`,
			`spec.spec.devices.requests: request "r": count must be 1, got 2: a container can use only one with MPS: its processes connect to one MPS ` +
				`control daemon, which serves one GPU; add a request for each container that is to have another GPU`,
		},
		"counters of a GPU without its perfmon": {
			"ResourceClaim", `{spec: ` + devices("gpu.prism.dev", "gpu.prism.dev", counters) + `}`,
			`spec.devices.requests: request "r": GPUMetricsConfig.source NsightSystems requires the perfmon device of each GPU in the same claim; add a request ` +
				`of class perfmon.gpu.prism.dev for each GPU, and a constraint with matchAttribute: gpu.prism.dev/parentUUID for both`,
		},
		"nothing to record": {
			"ResourceClaimTemplate", `{spec: {spec: ` + devices("locked", "gpu.prism.dev", `{apiVersion: gpu.prism.dev/v1alpha1, kind: ProfilerConfig, injection: None}`) + `}}`,
			`spec.spec.devices.requests: request "r": ProfilerConfig.injection None records nothing without a GPUMetricsConfig with source NsightSystems; ` +
				`set source: NsightSystems, or injection: Preload`,
		},
		"two errors": {
			"DeviceClass", `{spec: {config: [{opaque: {driver: gpu.prism.dev, parameters: {kind: GPUConfig}}}, {opaque: {driver: gpu.prism.dev, parameters: {}}}]}}`,
			`spec.config[0].opaque.parameters: apiVersion: required and must be a string; supported values: gpu.prism.dev/v1alpha1; spec.config[1].opaque.parameters: apiVersion: ` +
				`required and must be a string; supported values: gpu.prism.dev/v1alpha1; kind: required and must be a string; supported values: GPUConfig, GPUMetricsConfig, ProfilerConfig`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := handler.Handle(t.Context(), review(t, admissionapi.Create, c.kind, c.object))
			assert.False(t, response.Allowed)
			assert.Equal(t, &metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: c.want}, response.Result)
		})
	}
}

func TestHandle_ValidOrNotValidated_Allowed(t *testing.T) {
	t.Parallel()
	handler := newHandler(t)
	claim := `{spec: ` + devices("gpu.prism.dev", "gpu.prism.dev", invalid) + `}`
	allowed := map[string]admission.Request{
		"good": review(t, admissionapi.Create, "ResourceClaim",
			`{spec: `+devices("gpu.prism.dev", "gpu.prism.dev", `{apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig}`)+`}`),
		"counters and a perfmon": review(t, admissionapi.Create, "ResourceClaim", `{spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.prism.dev}}, `+
			`{name: c, exactly: {deviceClassName: perfmon.gpu.prism.dev}}], config: [{opaque: {driver: gpu.prism.dev, parameters: `+counters+`}}]}}}`),
		"another driver":  review(t, admissionapi.Create, "ResourceClaim", `{spec: `+devices("tpu", "tpu.example.com", invalid)+`}`),
		"unknown class":   review(t, admissionapi.Create, "ResourceClaim", `{spec: `+devices("none", "gpu.prism.dev", `{apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig}`)+`}`),
		"empty spec":      review(t, admissionapi.Create, "DeviceClass", `{spec: {}}`),
		"deletion":        review(t, admissionapi.Delete, "ResourceClaim", claim),
		"another kind":    review(t, admissionapi.Create, "ResourceSlice", claim),
		"another version": review(t, admissionapi.Create, "ResourceClaim", claim),
		"status":          review(t, admissionapi.Update, "ResourceClaim", claim),
	}
	older := allowed["another version"]
	older.Kind.Version = "v1beta1"
	allowed["another version"] = older
	status := allowed["status"]
	status.SubResource, status.OldObject = "status", status.Object
	allowed["status"] = status
	for name, req := range allowed {
		response := handler.Handle(t.Context(), req)
		assert.True(t, response.Allowed, "%s: %v", name, response.Result)
	}
}

// TestHandle_Subresource_NotValidated for any spec in the request: the API server ignores the spec, and a claim whose status cannot be
// written is never allocated, released or deleted.
func TestHandle_Subresource_NotValidated(t *testing.T) {
	t.Parallel()
	handler := newHandler(t)
	claim := `{spec: ` + devices("gpu.prism.dev", "gpu.prism.dev", invalid) + `}`
	for _, operation := range []admissionapi.Operation{admissionapi.Create, admissionapi.Update} {
		req := review(t, operation, "ResourceClaim", claim)
		req.OldObject = review(t, admissionapi.Create, "ResourceClaim", `{spec: {}}`).Object
		assert.False(t, handler.Handle(t.Context(), req).Allowed, "%s of the claim", operation)
		req.SubResource = "status"
		assert.True(t, handler.Handle(t.Context(), req).Allowed, "%s of its status", operation)
	}
}

// TestHandle_PolicyForProfiles_SaidWhenWritten: a claim that violates the cluster's policy is denied when it is written, with the message
// of the node. The node decides about everything that is unknown at that time.
func TestHandle_PolicyForProfiles_SaidWhenWritten(t *testing.T) {
	t.Parallel()
	const policy = "policy: {namespaces: [team], maxBytes: 1Gi, maxRetention: 24h, maxDuration: 1h}\ndefaults: [{config: {output: {maxBytes: 1Mi}}}]"
	for name, c := range map[string]struct{ policy, namespace, fields, want string }{
		"nothing beyond it": {policy, "team", `output: {maxBytes: 1Gi, retention: 1h}`, ""},
		"raw switches":      {policy, "team", `args: [--cuda-memory-usage=true]`, "ProfilerConfig.args are not allowed: profiler.policy.args is Deny"},
		"bytes": {
			policy, "team", `output: {maxBytes: 2Gi}`,
			"ProfilerConfig.output.maxBytes must be less than or equal to profiler.policy.maxBytes, 1Gi, got 2Gi",
		},
		"retention": {
			policy, "team", `output: {retention: 25h}`,
			"ProfilerConfig.output.retention must be less than or equal to profiler.policy.maxRetention, 24h0m0s, got 25h0m0s",
		},
		"duration": {
			policy, "team", `duration: 61m`,
			"ProfilerConfig.duration must be less than or equal to profiler.policy.maxDuration, 1h0m0s, got 1h1m0s",
		},
		"namespace":          {policy, "other", ``, "profiles are not allowed in namespace other; profiler.policy.namespaces allows: team"},
		"opted out":          {policy, "other", `enabled: false`, ""},
		"no policy":          {"", "other", ``, ""},
		"an invalid one":     {"policy: {args: Maybe}", "other", `args: [--cuda-memory-usage=true]`, ""},
		"one that is absent": {"absent", "other", `args: [--cuda-memory-usage=true]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := newHandler(t)
			scheme := runtime.NewScheme()
			require.NoError(t, corev1.AddToScheme(scheme))
			stored := fake.NewClientBuilder().WithScheme(scheme)
			if c.policy != "absent" {
				stored.WithObjects(&corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: "prism-system", Name: "rules"}, Data: map[string]string{"profiler.yaml": c.policy},
				})
			}
			handler.Profiles = ProfileRules{Reader: stored.Build(), Map: types.NamespacedName{Namespace: "prism-system", Name: "rules"}}
			spec := devices("gpu.prism.dev", "gpu.prism.dev", `{apiVersion: gpu.prism.dev/v1alpha1, kind: ProfilerConfig, `+c.fields+`}`)
			for kind, object := range map[string]string{"ResourceClaim": `{spec: ` + spec + `}`, "ResourceClaimTemplate": `{spec: {spec: ` + spec + `}}`} {
				req := review(t, admissionapi.Create, kind, object)
				req.Namespace = c.namespace
				response := handler.Handle(t.Context(), req)
				assert.Equal(t, c.want == "", response.Allowed, "%s: %v", kind, response.Result)
				if c.want != "" {
					assert.True(t, strings.HasSuffix(response.Result.Message, `spec.devices.requests: request "r": `+c.want), response.Result.Message)
				}
			}
		})
	}
}

// An object that was created without the webhook can be updated as long as its spec does not change.
func TestHandle_UpdateWithUnchangedSpec_Allowed(t *testing.T) {
	t.Parallel()
	handler := newHandler(t)
	for kind, spec := range map[string]string{
		"ResourceClaim":         devices("gpu.prism.dev", "gpu.prism.dev", invalid),
		"ResourceClaimTemplate": `{spec: ` + devices("gpu.prism.dev", "gpu.prism.dev", invalid) + `}`,
		"DeviceClass":           `{config: [{opaque: {driver: gpu.prism.dev, parameters: ` + invalid + `}}]}`,
	} {
		req := review(t, admissionapi.Update, kind, `{metadata: {labels: {a: b}}, spec: `+spec+`}`)
		req.OldObject = review(t, admissionapi.Create, kind, `{spec: `+spec+`}`).Object
		assert.True(t, handler.Handle(t.Context(), req).Allowed, kind)
		req.OldObject = review(t, admissionapi.Create, kind, `{spec: {}}`).Object
		assert.False(t, handler.Handle(t.Context(), req).Allowed, "%s that becomes invalid", kind)
	}
}

// unready is a cache that is not synced yet.
type unready struct{ client.Reader }

func (unready) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// A DeviceClass that is not read in time is not considered; everything else is validated.
func TestHandle_ClassesUnavailable_RestValidated(t *testing.T) {
	t.Parallel()
	handler := &OpaqueConfig{Driver: "gpu.prism.dev", Classes: unready{}}
	good := `{apiVersion: gpu.prism.dev/v1alpha1, kind: GPUConfig}`
	assert.True(t, handler.Handle(t.Context(), review(t, admissionapi.Create, "ResourceClaim", `{spec: `+devices("locked", "gpu.prism.dev", good)+`}`)).Allowed)
	assert.False(t, handler.Handle(t.Context(), review(t, admissionapi.Create, "ResourceClaim", `{spec: `+devices("locked", "gpu.prism.dev", invalid)+`}`)).Allowed)
}

func TestHandle_UndecodableObject_Error(t *testing.T) {
	t.Parallel()
	response := newHandler(t).Handle(t.Context(), admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{
		Operation: admissionapi.Create, Kind: metav1.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaim"},
		Object: runtime.RawExtension{Raw: json.RawMessage(`[]`)},
	}})
	assert.False(t, response.Allowed)
	assert.Contains(t, response.Result.Message, "decoding the ResourceClaim: ")
}
