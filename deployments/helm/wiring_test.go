package helm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/config"
)

// account is the user name of the DaemonSet's pods.
func account(t *testing.T, rendered objects) string {
	t.Helper()
	daemons := rendered.only(t, "DaemonSet")
	return fmt.Sprintf("system:serviceaccount:%s:%s", daemons.GetNamespace(),
		dig(t, daemons, "spec", "template", "spec", "serviceAccountName"))
}

// TestChartServiceAccount_EveryReference_SameAccount: the DaemonSet, the role's binding and the policy must name the same account. A policy
// for another one never applies, and no other test would show it.
func TestChartServiceAccount_EveryReference_SameAccount(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"--set", "serviceAccount.name=other"},
		{"--set", "serviceAccount.create=false", "--set", "serviceAccount.name=given"},
		{"--set", "fullnameOverride=" + strings.Repeat("long-", 11) + "name"},
		{"--set", "nameOverride=gpu", "--namespace", "elsewhere"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			rendered := parse(t, render(t, args...))
			want := account(t, rendered)

			subjects := dig(t, rendered.only(t, "ClusterRoleBinding"), "subjects").([]any)
			require.Len(t, subjects, 1)
			subject := subjects[0].(map[string]any)
			assert.Equal(t, want, fmt.Sprintf("system:serviceaccount:%s:%s", subject["namespace"], subject["name"]))

			for _, what := range []string{"resourceslices", "claimstatus"} {
				rules := newPolicy(t, rendered, rendered.only(t, "DaemonSet").GetName()+"-"+what)
				conditions := rules.spec["matchConditions"].([]any)
				require.Len(t, conditions, 1)
				assert.Equal(t, fmt.Sprintf("request.userInfo.username == %q", want), conditions[0].(map[string]any)["expression"])
			}
			assert.Equal(t, rendered.only(t, "ClusterRole").GetName(),
				dig(t, rendered.only(t, "ClusterRoleBinding"), "roleRef", "name"))
			if _, created := rendered["ServiceAccount/given"]; !created && !strings.Contains(strings.Join(args, " "), "create=false") {
				made := rendered.only(t, "ServiceAccount")
				assert.Equal(t, want, "system:serviceaccount:"+made.GetNamespace()+":"+made.GetName())
			}
		})
	}
}

// TestChartDriverName_AnotherName_Everywhere: no trace of the default name remains.
func TestChartDriverName_AnotherName_Everywhere(t *testing.T) {
	const driver = "gpu.nvidia.com"
	text := render(t, "--set", "driverName="+driver)
	assert.NotContains(t, text, "gpu.prism.dev")
	rendered := parse(t, text)
	for name, kind := range map[string]string{
		driver: "gpu", "mig." + driver: "mig", "mps." + driver: "mps", "timeslice." + driver: "timeslice", "mig.nvidia.com": "mig",
	} {
		require.Contains(t, rendered, "DeviceClass/"+name)
		selectors := dig(t, rendered["DeviceClass/"+name], "spec", "selectors").([]any)
		require.Len(t, selectors, 1)
		assert.Equal(t, fmt.Sprintf("device.driver == %q && device.attributes[%q].type == %q", driver, driver, kind),
			selectors[0].(map[string]any)["cel"].(map[string]any)["expression"])
	}
	for _, kind := range []string{"monitor", "perfmon"} {
		assert.NotContains(t, rendered, "DeviceClass/"+kind+"."+driver, "a class without devices")
	}
	assert.NotContains(t, render(t, "--set", "driverName=gpu.example.com"), "mig.nvidia.com", "it is the class of NVIDIA's driver")
	rules := dig(t, rendered.only(t, "ClusterRole"), "rules").([]any)
	assert.Contains(t, fmt.Sprint(rules...), "resourceNames:["+driver+"]")
	assert.Equal(t, driver, environment(t, rendered)["PRISM_DRIVER_NAME"])
}

// environment is the plugin's, without values that come from the pod's fields.
func environment(t *testing.T, rendered objects) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, variable := range container(t, rendered)["env"].([]any) {
		variable := variable.(map[string]any)
		value, _ := variable["value"].(string)
		name := variable["name"].(string)
		require.NotContains(t, env, name)
		env[name] = value
	}
	return env
}

func container(t *testing.T, rendered objects) map[string]any {
	t.Helper()
	containers := dig(t, rendered.only(t, "DaemonSet"), "spec", "template", "spec", "containers").([]any)
	require.Len(t, containers, 1)
	return containers[0].(map[string]any)
}

// TestChartPlugin_Environment_EveryVariableRead loads the plugin's configuration from the environment of the DaemonSet: the program must
// read every PRISM_ variable, and the chart's defaults must be the program's.
func TestChartPlugin_Environment_EveryVariableRead(t *testing.T) {
	load := func(args ...string) *config.Plugin {
		env := environment(t, parse(t, render(t, args...)))
		for name, field := range map[string]string{"NODE_NAME": "n0", "POD_UID": "uid"} {
			require.Contains(t, env, name)
			env[name] = field
		}
		asked := map[string]bool{}
		plugin, err := config.LoadPlugin(nil, func(name string) string {
			asked[name] = true
			return env[name]
		})
		require.NoError(t, err)
		for name := range env {
			assert.True(t, asked[name] || !strings.HasPrefix(name, "PRISM_"), "the plugin does not know %s", name)
		}
		return plugin
	}
	defaults, err := config.LoadPlugin([]string{"--node-name=n0", "--pod-uid=uid", "--exporter", "--release=prism-system/prism"}, func(string) string { return "" })
	require.NoError(t, err)
	if diff := cmp.Diff(defaults, load()); diff != "" {
		t.Errorf("defaults of the program and of the chart (-program +chart):\n%s", diff)
	}

	yes := true
	all := load("--values", "testdata/values/everything.yaml")
	assert.Equal(t, &config.Plugin{
		DriverName: "gpu.example.com", Release: "prism-system/prism", NodeName: "n0", PodUID: "uid", MonitorDevices: config.MonitorPerNode, PerfmonDevices: config.PerfmonPerGPU, Exporter: true,
		Health: config.Health{
			XIDs: config.XIDActions{"45": "Taint", "74": "Ignore"}, NoExecute: config.Names{"gpu-lost", "xid"}, NodeConditions: config.Names{"GpuXidError"},
		},
		Profiler: config.Profiler{
			Enabled: true, Map: "prism-system/prism-everything-profiler", Endpoint: ":8444", Certificate: "/etc/prism/reports", Client: "prism-controller",
			NodeBytes: resource.QuantityValue{Quantity: resource.MustParse("32Gi")}, StartTimeout: 30 * time.Second,
			ReportTimeout: 10 * time.Minute, Collector: true, CollectorVersion: "2025.5.1",
		},
		KubeAPI: config.Rate{QPS: 50.5, Burst: 100}, SchedulerVersion: "1.36.1",
		Paths: config.Paths{
			HostRoot: "/host", CDIRoot: "/etc/cdi",
			KubeletPlugins: "/data/kubelet/plugins", KubeletRegistrar: "/data/kubelet/plugins_registry",
			KubeletPodResources: "/data/kubelet/pod-resources/kubelet.sock", CRISocket: "/run/crio/crio.sock", StateDir: "/data/prism",
		},
		Driver: config.Driver{
			Root: "/run/nvidia/driver", SearchDirs: config.Names{"/opt/nvidia/lib", "/opt/nvidia/bin"}, CDIHook: "/usr/local/nvidia/toolkit/nvidia-cdi-hook", FailOnInitError: &yes, CUDACompat: true,
		},
		NodeConfig: config.NodeConfig{Map: namespace + "/nodes", Name: "h100", Label: "example.com/gpus", Fallbacks: config.Names{"empty", "single"}},
		Serving:    config.Serving{HTTPEndpoint: ":8080", Pprof: true, Logging: config.Logging{LogVerbosity: 6, LogFormat: "json"}},
	}, all)
}

// TestChartPlugin_Mounts_SamePathsAsHost: kubelet, runtime and hooks get paths from the plugin, so these must be the same inside and
// outside of the container.
func TestChartPlugin_Mounts_SamePathsAsHost(t *testing.T) {
	rendered := parse(t, render(t, "--values", "testdata/values/everything.yaml"))
	hostPaths := map[string]string{}
	for _, volume := range dig(t, rendered.only(t, "DaemonSet"), "spec", "template", "spec", "volumes").([]any) {
		volume := volume.(map[string]any)
		if path, ok := volume["hostPath"].(map[string]any); ok {
			hostPaths[volume["name"].(string)] = path["path"].(string)
		}
	}
	mounted := map[string]string{}
	for _, mount := range container(t, rendered)["volumeMounts"].([]any) {
		mount := mount.(map[string]any)
		if mount["name"] == "reports" {
			continue // a Secret
		}
		mounted[mount["mountPath"].(string)] = hostPaths[mount["name"].(string)]
		onlyRead := map[any]bool{"/host": true, "/data/kubelet/pod-resources": true}[mount["mountPath"]]
		assert.Equal(t, onlyRead, mount["readOnly"] == true, "%s is only read: %t", mount["mountPath"], onlyRead)
		if mount["mountPath"] == "/host" || mount["mountPath"] == "/run/gpu.example.com" {
			assert.Equal(t, "HostToContainer", mount["mountPropagation"])
		}
	}
	assert.Equal(t, map[string]string{
		"/data/kubelet/plugins": "/data/kubelet/plugins", "/data/kubelet/plugins_registry": "/data/kubelet/plugins_registry",
		"/data/kubelet/pod-resources": "/data/kubelet/pod-resources", "/etc/cdi": "/etc/cdi", "/data/prism": "/data/prism", "/host": "/",
		"/run/gpu.example.com": "/run/gpu.example.com",
	}, mounted)
}

func TestChart_Namespace_NamespacedObjectsInIt(t *testing.T) {
	for key, object := range parse(t, render(t, "--values", "testdata/values/everything.yaml", "--set", "config.name=,config.default=,config.map.a=x")) {
		if object.GetNamespace() == "kube-system" {
			assert.Equal(t, "extension-apiserver-authentication-reader", dig(t, object, "roleRef", "name"), key)
			continue // the Role exists
		}
		switch object.GetKind() {
		case "Secret", "DaemonSet", "Deployment", "ServiceAccount", "ResourceQuota", "Service", "PodMonitor", "ServiceMonitor", "PrometheusRule", "ConfigMap", "Role", "RoleBinding",
			"NetworkPolicy", "ResourceClaimTemplate", "Pod":
			assert.Equal(t, namespace, object.GetNamespace(), key)
		default:
			assert.Empty(t, object.GetNamespace(), key)
		}
	}
}

func TestChart_OptionalObjects_OnlyWhereEnabled(t *testing.T) {
	for part, kinds := range map[string][]string{
		"deviceClasses.create=false":     {"DeviceClass"},
		"admissionPolicy.create=false":   {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
		"metrics.service.create=true":    {"Service"},
		"metrics.podMonitor.create=true": {"PodMonitor"},
		"resourceQuota.create=true":      {"ResourceQuota"},

		"openshift.securityContextConstraints=privileged": {"RoleBinding"},
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			count := func(rendered objects) int {
				n := 0
				for _, object := range rendered {
					for _, kind := range kinds {
						if object.GetKind() == kind && object.GetLabels()["app.kubernetes.io/component"] != "controller" {
							n++
						}
					}
				}
				return n
			}
			before, after := count(parse(t, render(t))), count(parse(t, render(t, "--set", part)))
			if !strings.HasSuffix(part, "=false") {
				before, after = after, before
			}
			assert.Positive(t, before)
			assert.Zero(t, after)
		})
	}
}

// TestChartSelectors_ServiceAndPodMonitor_MatchPods: Service and PodMonitor must find the DaemonSet's pods.
func TestChartSelectors_ServiceAndPodMonitor_MatchPods(t *testing.T) {
	rendered := parse(t, render(t, "--values", "testdata/values/everything.yaml"))
	labels := dig(t, rendered.only(t, "DaemonSet"), "spec", "template", "metadata", "labels").(map[string]any)
	for _, selector := range []any{
		dig(t, rendered.only(t, "DaemonSet"), "spec", "selector", "matchLabels"),
		dig(t, rendered.only(t, "Service"), "spec", "selector"),
		dig(t, rendered.only(t, "PodMonitor"), "spec", "selector", "matchLabels"),
	} {
		for key, value := range selector.(map[string]any) {
			assert.Equal(t, value, labels[key], key)
		}
	}
}

// TestChartValues_AffinityExample_ValidForDaemonSet: the example in a comment of values.yaml is valid for a DaemonSet.
func TestChartValues_AffinityExample_ValidForDaemonSet(t *testing.T) {
	values, err := os.ReadFile("prism/values.yaml")
	require.NoError(t, err)
	_, recipe, found := strings.Cut(string(values), "  #   affinity:\n")
	require.True(t, found)
	recipe, _, found = strings.Cut(recipe, "  # and with NotIn")
	require.True(t, found)
	file := filepath.Join(t.TempDir(), "values.yaml")
	text := "kubeletPlugin:\n  affinity:\n" + strings.ReplaceAll(recipe, "  #   ", "  ")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	affinity := corev1.Affinity{}
	shown, ok := dig(t, parse(t, render(t, "--values", file)).only(t, "DaemonSet"), "spec", "template", "spec", "affinity").(map[string]any)
	require.True(t, ok)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(shown, &affinity, true))
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	require.Len(t, terms, 1)
	assert.Equal(t, []corev1.NodeSelectorRequirement{
		{Key: "nvidia.com/gpu.present", Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}},
		{Key: "gpus", Operator: corev1.NodeSelectorOpIn, Values: []string{"prism"}},
	}, terms[0].MatchExpressions)
}
