package helm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionapi "k8s.io/api/admission/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiadmission "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celenv "k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/pkg/controller/admission"
)

const admissionValues = "config.map.a=x,driverName=gpu.example.com"

// webhook is the only webhook of the rendered configuration.
func webhook(t *testing.T, rendered objects) map[string]any {
	t.Helper()
	all := dig(t, rendered["ValidatingWebhookConfiguration/prism-controller"], "webhooks").([]any)
	require.Len(t, all, 1)
	return all[0].(map[string]any)
}

// TestChartAdmission_Enabled_WebhookReachesController: the API server reaches the controller's pods at their path and trusts their
// certificate, and a webhook that does not answer blocks nothing.
func TestChartAdmission_Enabled_WebhookReachesController(t *testing.T) {
	rendered := parse(t, render(t, "--set", admissionValues))
	hook := webhook(t, rendered)
	assert.Equal(t, "Ignore", hook["failurePolicy"])
	assert.LessOrEqual(t, hook["timeoutSeconds"], int64(2))
	client := hook["clientConfig"].(map[string]any)
	assert.Equal(t, map[string]any{"name": "prism-controller", "namespace": namespace, "path": admission.Path, "port": int64(443)}, client["service"])
	service := rendered["Service/prism-controller"]
	assert.Equal(t, dig(t, rendered["Deployment/prism-controller"], "spec", "selector", "matchLabels"), dig(t, service, "spec", "selector"))

	read := func(text any) []byte {
		raw, err := base64.StdEncoding.DecodeString(text.(string))
		require.NoError(t, err)
		return raw
	}
	data := dig(t, rendered["Secret/prism-controller-admission"], "data").(map[string]any)
	pair, err := tls.X509KeyPair(read(data["tls.crt"]), read(data["tls.key"]))
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(read(client["caBundle"])))
	_, err = leaf.Verify(x509.VerifyOptions{DNSName: "prism-controller.prism-system.svc", Roots: roots, CurrentTime: time.Now().AddDate(9, 0, 0)})
	require.NoError(t, err)
}

// TestChartAdmission_Certificate_ServerTrusted: the controller's server, with the certificate that the chart mounts, answers a client that
// trusts the webhook's CA bundle.
func TestChartAdmission_Certificate_ServerTrusted(t *testing.T) {
	rendered := parse(t, render(t, "--set", admissionValues))
	certificate := t.TempDir()
	for name, text := range dig(t, rendered["Secret/prism-controller-admission"], "data").(map[string]any) {
		raw, err := base64.StdEncoding.DecodeString(text.(string))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(certificate, name), raw, 0o600))
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().(*net.TCPAddr)
	require.NoError(t, free.Close())
	server := ctrlwebhook.NewServer(ctrlwebhook.Options{Host: "127.0.0.1", Port: address.Port, CertDir: certificate})
	server.Register(admission.Path, &ctrlwebhook.Admission{Handler: &admission.OpaqueConfig{Driver: "gpu.example.com", Classes: fake.NewClientBuilder().Build()}})
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	require.Eventually(t, func() bool { return server.StartedChecker()(nil) == nil }, time.Minute, 10*time.Millisecond)

	bundle, err := base64.StdEncoding.DecodeString(webhook(t, rendered)["clientConfig"].(map[string]any)["caBundle"].(string))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(bundle))
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "prism-controller.prism-system.svc"}}}
	defer client.CloseIdleConnections()
	answer, err := client.Post("https://"+address.String()+admission.Path, "application/json", strings.NewReader(`{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE",
		"kind": {"group": "resource.k8s.io", "version": "v1", "kind": "DeviceClass"}, "object": {"spec": {"config": [{"opaque": {
		"driver": "gpu.example.com", "parameters": {"apiVersion": "gpu.prism.dev/v1alpha1", "kind": "Gpu"}}}]}}}}`))
	require.NoError(t, err)
	defer answer.Body.Close()
	var review admissionapi.AdmissionReview
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&review))
	require.NotNil(t, review.Response)
	assert.False(t, review.Response.Allowed)
	assert.Equal(t, types.UID("1"), review.Response.UID)
	assert.Equal(t, `spec.config[0].opaque.parameters: kind: unsupported value "Gpu"; supported values: GPUConfig, GPUMetricsConfig, ProfilerConfig`, review.Response.Result.Message)
}

// TestChartAdmission_OtherDrivers_NotSent: only objects with configuration for this driver reach the webhook.
func TestChartAdmission_OtherDrivers_NotSent(t *testing.T) {
	conditions := webhook(t, parse(t, render(t, "--set", admissionValues)))["matchConditions"].([]any)
	require.Len(t, conditions, 1)
	evaluator := plugincel.NewConditionCompiler(celenv.MustBaseEnvSet(celenv.DefaultCompatibilityVersion())).CompileCondition(
		[]plugincel.ExpressionAccessor{&matchconditions.MatchCondition{Name: "c", Expression: conditions[0].(map[string]any)["expression"].(string)}},
		plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, celenv.NewExpressions)
	require.Empty(t, evaluator.CompilationErrors())
	matcher := matchconditions.NewMatcher(evaluator, nil, "webhook", "validating", "prism-controller")
	for object, want := range map[string]bool{
		`{kind: ResourceClaim, spec: {devices: {}}}`:                                                                                             false,
		`{kind: ResourceClaim, spec: {devices: {requests: [{name: r}]}}}`:                                                                        false,
		`{kind: ResourceClaim, spec: {devices: {config: [{requests: [r]}]}}}`:                                                                    false,
		`{kind: ResourceClaim, spec: {devices: {config: [{opaque: {driver: tpu.example.com}}]}}}`:                                                false,
		`{kind: ResourceClaim, spec: {devices: {config: [{opaque: {driver: tpu.example.com}}, {opaque: {driver: gpu.example.com}}]}}}`:           true,
		`{kind: ResourceClaimTemplate, spec: {spec: {devices: {}}}}`:                                                                             false,
		`{kind: ResourceClaimTemplate, spec: {spec: {devices: {config: [{opaque: {driver: gpu.example.com, parameters: {kind: GPUConfig}}}]}}}}`: true,
		`{kind: DeviceClass, spec: {}}`:                            false,
		`{kind: DeviceClass, spec: {selectors: [], config: [{}]}}`: false,
		`{kind: DeviceClass, spec: {config: [{opaque: {driver: gpu.example.com, parameters: {kind: GPUConfig}}}]}}`: true,
	} {
		var of struct{ Kind string }
		require.NoError(t, yaml.Unmarshal([]byte(object), &of))
		asked := map[string]runtime.Object{
			"ResourceClaim": &resourceapi.ResourceClaim{}, "ResourceClaimTemplate": &resourceapi.ResourceClaimTemplate{}, "DeviceClass": &resourceapi.DeviceClass{},
		}[of.Kind]
		require.NoError(t, yaml.Unmarshal([]byte(object), asked))
		kind := resourceapi.SchemeGroupVersion.WithKind(of.Kind)
		got := matcher.Match(t.Context(), &apiadmission.VersionedAttributes{
			Attributes: apiadmission.NewAttributesRecord(asked, nil, kind, "ns", "n", resourceapi.SchemeGroupVersion.WithResource(strings.ToLower(of.Kind)+"s"), "",
				apiadmission.Create, nil, false, nil),
			VersionedKind: kind, VersionedObject: apiadmission.NewLazyObject(asked),
		}, nil, nil)
		require.NoError(t, got.Error, object)
		assert.Equal(t, want, got.Matches, object)
	}
}

// TestChartAdmission_Disabled_NoObjects: the controller gets no certificate then, and the API server does not call it.
func TestChartAdmission_Disabled_NoObjects(t *testing.T) {
	rendered := parse(t, render(t, "--set", admissionValues+",controller.admission.enabled=false"))
	for _, key := range []string{"ValidatingWebhookConfiguration/prism-controller", "Service/prism-controller", "Secret/prism-controller-admission"} {
		assert.NotContains(t, rendered, key)
	}
	assert.NotContains(t, rendered["Deployment/prism-controller"].Object["spec"].(map[string]any)["template"].(map[string]any)["spec"], "volumes")
}

// TestChartAdmission_OwnSecret_Kept: the chart creates no certificate if the values name a Secret.
func TestChartAdmission_OwnSecret_Kept(t *testing.T) {
	rendered := parse(t, render(t, "--set", admissionValues+",controller.admission.certificate.secretName=mine,controller.admission.certificate.caBundle=pem"))
	assert.NotContains(t, rendered, "Secret/prism-controller-admission")
	assert.NotContains(t, rendered, "Secret/mine")
	assert.Equal(t, base64.StdEncoding.EncodeToString([]byte("pem")), webhook(t, rendered)["clientConfig"].(map[string]any)["caBundle"])
	volumes := dig(t, rendered["Deployment/prism-controller"], "spec", "template", "spec", "volumes").([]any)
	assert.Equal(t, "mine", volumes[0].(map[string]any)["secret"].(map[string]any)["secretName"])
}
