package helm

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/pkg/admission"
)

const admissionValues = "config.map.a=x,driverName=gpu.example.com"

// webhook is the only one of the rendered configuration.
func webhook(t *testing.T, rendered objects) map[string]any {
	t.Helper()
	all := dig(t, rendered["ValidatingWebhookConfiguration/prism-controller"], "webhooks").([]any)
	require.Len(t, all, 1)
	return all[0].(map[string]any)
}

// TestChartAdmissionIsReached: the API server finds the controller's pods at the path that they serve, trusts what they show, and
// waits for nobody.
func TestChartAdmissionIsReached(t *testing.T) {
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

// TestChartAdmissionAsksAboutOurs: only what has configuration for the driver is worth a question.
func TestChartAdmissionAsksAboutOurs(t *testing.T) {
	env, err := cel.NewEnv(cel.OptionalTypes(), cel.Variable("object", cel.DynType))
	require.NoError(t, err)
	conditions := webhook(t, parse(t, render(t, "--set", admissionValues)))["matchConditions"].([]any)
	require.Len(t, conditions, 1)
	ast, issues := env.Compile(conditions[0].(map[string]any)["expression"].(string))
	require.NoError(t, issues.Err())
	program, err := env.Program(ast)
	require.NoError(t, err)
	for object, want := range map[string]bool{
		`{spec: {devices: {}}}`:                      false,
		`{spec: {devices: {requests: [{name: r}]}}}`: false,
		`{spec: {spec: {devices: {config: []}}}}`:    false,
		`{spec: {}}`:                                                         false,
		`{spec: {selectors: [], config: [{}]}}`:                              false,
		`{spec: {devices: {config: [{requests: [r]}]}}}`:                     false,
		`{spec: {devices: {config: [{opaque: {driver: tpu.example.com}}]}}}`: false,
		`{spec: {devices: {config: [{opaque: {driver: tpu.example.com}}, {opaque: {driver: gpu.example.com}}]}}}`: true,
		`{spec: {spec: {devices: {config: [{opaque: {driver: gpu.example.com}}]}}}}`:                              true,
		`{spec: {config: [{opaque: {driver: gpu.example.com}}]}}`:                                                 true,
	} {
		var tree map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(object), &tree))
		got, _, err := program.Eval(map[string]any{"object": tree})
		require.NoError(t, err, object)
		assert.Equal(t, want, got.Value(), object)
	}
}

// TestChartAdmissionIsOff where it is not wanted: the controller then shows no certificate and no one asks it.
func TestChartAdmissionIsOff(t *testing.T) {
	rendered := parse(t, render(t, "--set", admissionValues+",controller.admission.enabled=false"))
	for _, key := range []string{"ValidatingWebhookConfiguration/prism-controller", "Service/prism-controller", "Secret/prism-controller-admission"} {
		assert.NotContains(t, rendered, key)
	}
	assert.NotContains(t, rendered["Deployment/prism-controller"].Object["spec"].(map[string]any)["template"].(map[string]any)["spec"], "volumes")
}

// TestChartAdmissionGivenCertificate: the chart makes none beside one that is given.
func TestChartAdmissionGivenCertificate(t *testing.T) {
	rendered := parse(t, render(t, "--set", admissionValues+",controller.admission.certificate.secretName=mine,controller.admission.certificate.caBundle=pem"))
	assert.NotContains(t, rendered, "Secret/prism-controller-admission")
	assert.NotContains(t, rendered, "Secret/mine")
	assert.Equal(t, base64.StdEncoding.EncodeToString([]byte("pem")), webhook(t, rendered)["clientConfig"].(map[string]any)["caBundle"])
	volumes := dig(t, rendered["Deployment/prism-controller"], "spec", "template", "spec", "volumes").([]any)
	assert.Equal(t, "mine", volumes[0].(map[string]any)["secret"].(map[string]any)["secretName"])
}
