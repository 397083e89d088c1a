package helm

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/config"
)

// typed is a rendered object, decoded like in the API server.
func typed[T any](t *testing.T, rendered objects, key string) *T {
	t.Helper()
	object, ok := rendered[key]
	require.True(t, ok, "no %s", key)
	into := new(T)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true))
	return into
}

// TestChartTools_EachVersion_InstalledAndImported: the program accepts the flags, and no tool is in an init container, where a bad image
// would affect the others.
func TestChartTools_EachVersion_InstalledAndImported(t *testing.T) {
	two := tools + ",profiler.tools[1].version=2024.1,profiler.tools[1].image=j,profiler.tools[1].path=/nsys"
	set := typed[appsv1.DaemonSet](t, parse(t, render(t, "--set", two)), "DaemonSet/prism-profiler")
	pod := set.Spec.Template.Spec
	assert.False(t, *pod.AutomountServiceAccountToken, "what an administrator's image does has no access to the API")
	require.Len(t, pod.InitContainers, 1)
	assert.Equal(t, "programs", pod.InitContainers[0].Name)
	require.Len(t, pod.Containers, 4)
	for i, want := range []struct{ name, image, version, path string }{
		{"install-0", "i", "2025.5.1", "/opt"}, {"import-0", "i", "2025.5.1", "/opt"},
		{"install-1", "j", "2024.1", "/nsys"}, {"import-1", "j", "2024.1", "/nsys"},
	} {
		c := pod.Containers[i]
		assert.Equal(t, []string{want.name, want.image}, []string{c.Name, c.Image})
		require.Equal(t, []string{"/run/prism/programs/prism-tool", strings.Split(want.name, "-")[0]}, c.Command[:2])
		got, err := config.LoadTool(c.Command[2:], func(string) string { return "" })
		require.NoError(t, err)
		assert.Equal(t, []string{want.version, want.path}, []string{got.Version, got.Path})
		assert.Equal(t, []string{"2025.5.1", "2024.1"}, got.Versions)
		assert.Equal(t, "/var/lib/gpu.prism.dev", got.StateDir)
		assert.Equal(t, 10*time.Minute, got.ImportDeadline)
		assert.Nil(t, c.SecurityContext.Privileged)
		assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
		limit := c.Resources.Limits[corev1.ResourceMemory]
		assert.Zero(t, limit.Cmp(got.ImportMemory.Quantity), "the importer ends before its container does")
	}
}

// secret is a pair of certificate and key, and the CA beside it.
func secret(t *testing.T, rendered objects, name string) (*x509.Certificate, *x509.CertPool, string) {
	t.Helper()
	data := typed[corev1.Secret](t, rendered, "Secret/"+name).Data
	pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	require.NoError(t, err)
	block, _ := pem.Decode(data["ca.crt"])
	require.NotNil(t, block)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(data["ca.crt"]))
	return leaf, pool, string(data["ca.crt"])
}

// TestChartReports_Certificates_OfOneAuthority: plugins and controllers authenticate each other, and the CA of admission authenticates none
// of them.
func TestChartReports_Certificates_OfOneAuthority(t *testing.T) {
	rendered := parse(t, render(t, "--set", tools))
	plugin, ofNode, authority := secret(t, rendered, "prism-reports-node")
	controller, ofController, other := secret(t, rendered, "prism-reports-controller")
	assert.Equal(t, authority, other)
	_, err := plugin.Verify(x509.VerifyOptions{DNSName: "prism-node", Roots: ofController})
	require.NoError(t, err)
	_, err = controller.Verify(x509.VerifyOptions{Roots: ofNode, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)
	serving, _, _ := secret(t, rendered, "prism-controller-admission")
	_, err = serving.Verify(x509.VerifyOptions{Roots: ofController})
	require.Error(t, err)
	bundle := dig(t, rendered["APIService/v1alpha1.profiles.gpu.prism.dev"], "spec", "caBundle")
	assert.NotEmpty(t, bundle)
}

// controllerConfig is the controller's configuration from the environment of its Deployment.
func controllerConfig(t *testing.T, rendered objects) (*config.Controller, *appsv1.Deployment) {
	t.Helper()
	deployment := typed[appsv1.Deployment](t, rendered, "Deployment/prism-controller")
	env := map[string]string{"PRISM_NAMESPACE": namespace}
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		if variable.Value != "" {
			env[variable.Name] = variable.Value
		}
	}
	cfg, err := config.LoadController(nil, func(name string) string { return env[name] })
	require.NoError(t, err)
	return cfg, deployment
}

// TestChartReports_Controller_FindsPlugins by the labels of their pods and the port of their reports.
func TestChartReports_Controller_FindsPlugins(t *testing.T) {
	rendered := parse(t, render(t, "--set", tools+",profiler.reports.port=9000,controller.kubeAPI.burst=40", "--set-json", "controller.kubeAPI.qps=20.5"))
	cfg, deployment := controllerConfig(t, rendered)
	assert.EqualValues(t, 2, *deployment.Spec.Replicas)
	assert.True(t, cfg.DeviceClasses && cfg.AdmissionWebhook)
	selector, err := labels.Parse(cfg.Reports.PluginSelector)
	require.NoError(t, err)
	plugin := typed[appsv1.DaemonSet](t, rendered, "DaemonSet/prism-kubelet-plugin").Spec.Template
	assert.True(t, selector.Matches(labels.Set(plugin.Labels)))
	for _, other := range []string{"prism-profiler", "prism-exporter"} {
		assert.False(t, selector.Matches(labels.Set(typed[appsv1.DaemonSet](t, rendered, "DaemonSet/"+other).Spec.Template.Labels)), other)
	}
	assert.Equal(t, 9000, cfg.Reports.PluginPort)
	assert.Equal(t, config.Rate{QPS: 20.5, Burst: 40}, cfg.KubeAPI)
	assert.Equal(t, ":9000", pluginConfig(t, rendered, "prism-kubelet-plugin").Profiler.Endpoint)
}

// TestChartReports_ControllerOff_ReportsAlone: also without the admission webhook, on its port.
func TestChartReports_ControllerOff_ReportsAlone(t *testing.T) {
	rendered := parse(t, render(t, "--set", tools+",controller.enabled=false"))
	cfg, _ := controllerConfig(t, rendered)
	assert.False(t, cfg.DeviceClasses || cfg.AdmissionWebhook)
	assert.Equal(t, "/etc/prism/admission", cfg.AdmissionCertificate)
	assert.Equal(t, "/etc/prism/reports", cfg.Reports.Certificate)
	assert.NotContains(t, rendered, "ValidatingWebhookConfiguration/prism-controller")
	assert.Contains(t, rendered, "APIService/v1alpha1.profiles.gpu.prism.dev")
}

// TestChartReports_NoTools_NothingOfIt: an APIService without an answer blocks the deletion of namespaces.
func TestChartReports_NoTools_NothingOfIt(t *testing.T) {
	for key := range parse(t, render(t)) {
		assert.NotContains(t, key, "reports")
		assert.NotContains(t, key, "APIService")
		assert.NotContains(t, key, "profiler")
	}
}

// TestChartReports_Roles_ViewReadsEditChanges: commands start recordings, so the role view must not create them.
func TestChartReports_Roles_ViewReadsEditChanges(t *testing.T) {
	rendered := parse(t, render(t, "--set", tools))
	for name, want := range map[string]map[string][]string{
		"view": {"reports": {"get", "list"}, "sessions": {"get", "list"}},
		"edit": {"reports": {"delete"}, "reports/content": {"get"}, "sessioncommands": {"create"}},
	} {
		role, got := typed[rbacv1.ClusterRole](t, rendered, "ClusterRole/prism-reports-"+name), map[string][]string{}
		assert.Equal(t, "true", role.Labels["rbac.authorization.k8s.io/aggregate-to-"+name])
		for _, rule := range role.Rules {
			assert.Equal(t, []string{"profiles.gpu.prism.dev"}, rule.APIGroups)
			for _, resource := range rule.Resources {
				got[resource] = append(got[resource], rule.Verbs...)
			}
		}
		assert.Equal(t, want, got, name)
	}
}

func TestChartReports_OneOwnSecret_Refused(t *testing.T) {
	_, stderr, err := template(t, "--set", tools+",profiler.reports.certificate.nodeSecretName=a")
	require.Error(t, err)
	assert.Contains(t, stderr, "name both, of one authority")
	rendered := parse(t, render(t, "--set", tools+",profiler.reports.certificate.nodeSecretName=a,profiler.reports.certificate.controllerSecretName=b"))
	assert.NotContains(t, rendered, "Secret/prism-reports-node")
}

// TestChartReports_ClientName_OfControllersAlone: plugins accept that name, and certificates of plugins, signed by the same CA, lack it.
func TestChartReports_ClientName_OfControllersAlone(t *testing.T) {
	rendered := parse(t, render(t, "--set", tools))
	name := pluginConfig(t, rendered, "prism-kubelet-plugin").Profiler.Client
	controller, _, _ := secret(t, rendered, "prism-reports-controller")
	require.NoError(t, controller.VerifyHostname(name))
	require.Error(t, controller.VerifyHostname(config.ReportsServerName))
	plugin, _, _ := secret(t, rendered, "prism-reports-node")
	require.Error(t, plugin.VerifyHostname(name))
	require.NoError(t, plugin.VerifyHostname(config.ReportsServerName))

	const own = ",profiler.reports.certificate.controllerName=reader.example.com"
	_, stderr, err := template(t, "--set", tools+own)
	require.Error(t, err)
	assert.Contains(t, stderr, "controllerName is for Secrets of your own")
	rendered = parse(t, render(t, "--set", tools+own+",profiler.reports.certificate.nodeSecretName=a,profiler.reports.certificate.controllerSecretName=b"))
	assert.Equal(t, "reader.example.com", pluginConfig(t, rendered, "prism-kubelet-plugin").Profiler.Client)
}

// TestChartReports_NodeSecretMissing_PluginStarts: a pod with a volume of a missing Secret would never start, and no claim would be
// prepared.
func TestChartReports_NodeSecretMissing_PluginStarts(t *testing.T) {
	set := typed[appsv1.DaemonSet](t, parse(t, render(t, "--set", tools)), "DaemonSet/prism-kubelet-plugin")
	for _, volume := range set.Spec.Template.Spec.Volumes {
		if volume.Secret != nil {
			require.NotNil(t, volume.Secret.Optional, volume.Name)
			assert.True(t, *volume.Secret.Optional, volume.Name)
			return
		}
	}
	require.Fail(t, "no Secret")
}

// TestChartReports_Announcements_WrittenByPluginsReadByControllers: both only in the namespace of the release.
func TestChartReports_Announcements_WrittenByPluginsReadByControllers(t *testing.T) {
	rendered := parse(t, render(t, "--set", tools))
	verbs := func(role string) (all []string) {
		for _, rule := range typed[rbacv1.Role](t, rendered, "Role/"+role).Rules {
			if slices.Equal(rule.Resources, []string{"leases"}) && len(rule.ResourceNames) == 0 {
				all = append(all, rule.Verbs...)
			}
		}
		return all
	}
	assert.Equal(t, []string{"get", "create", "delete"}, verbs("prism-profiler"))
	assert.Equal(t, []string{"create", "list", "watch"}, verbs("prism-controller"))
	subjects := typed[rbacv1.RoleBinding](t, rendered, "RoleBinding/prism-profiler").Subjects
	assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "prism-kubelet-plugin", Namespace: namespace}}, subjects)
	plugin := pluginConfig(t, rendered, "prism-kubelet-plugin")
	cfg, _ := controllerConfig(t, rendered)
	assert.Equal(t, cfg.DriverName, plugin.DriverName)
	assert.True(t, strings.HasPrefix(plugin.Profiler.Map, cfg.Namespace+"/"), "announcements are in the namespace of the policy")
}
