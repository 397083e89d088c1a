package helm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/config"
)

// mpsService is the DaemonSet of the MPS service, decoded like in the API server.
func mpsService(t *testing.T, rendered objects, name string) *appsv1.DaemonSet {
	t.Helper()
	require.Contains(t, rendered, "DaemonSet/"+name)
	service := &appsv1.DaemonSet{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(rendered["DaemonSet/"+name].Object, service, true))
	return service
}

// TestChartMPS_Pod_NothingEndsItsClients: only the deletion of the pod ends the control daemons, and a daemon identifies its clients by
// their pids on the host.
func TestChartMPS_Pod_NothingEndsItsClients(t *testing.T) {
	service := mpsService(t, parse(t, render(t, "--values", "testdata/values/everything.yaml")), "prism-everything-mps")
	assert.Equal(t, appsv1.OnDeleteDaemonSetStrategyType, service.Spec.UpdateStrategy.Type)
	pod := service.Spec.Template.Spec
	require.Len(t, pod.Containers, 1)
	container := pod.Containers[0]
	assert.Nil(t, container.LivenessProbe)
	assert.Empty(t, container.Resources.Limits)
	assert.True(t, pod.HostPID)
	assert.False(t, *pod.AutomountServiceAccountToken)
	assert.True(t, *container.SecurityContext.Privileged)
	assert.Equal(t, []string{
		"/usr/bin/prism-mpsd", "--driver-name=gpu.example.com", "--host-root=/host", "--nvidia-driver-root=/run/nvidia/driver", "--driver-search-dirs=/opt/nvidia/lib,/opt/nvidia/bin",
		"--hardening=Full", "--log-format=json", "-v=6",
	}, container.Command)
}

// TestChartMPS_Nodes_AsThePlugin: the service runs on all nodes of the plugin, with the same image.
func TestChartMPS_Nodes_AsThePlugin(t *testing.T) {
	rendered := parse(t, render(t, "--values", "testdata/values/everything.yaml"))
	service := rendered["DaemonSet/prism-everything-mps"]
	for _, field := range []string{"nodeSelector", "affinity", "tolerations", "priorityClassName", "imagePullSecrets", "serviceAccountName"} {
		at := []string{"spec", "template", "spec", field}
		assert.Equal(t, dig(t, rendered.only(t, "DaemonSet"), at...), dig(t, service, at...), field)
	}
	containers := dig(t, service, "spec", "template", "spec", "containers").([]any)
	assert.Equal(t, container(t, rendered)["image"], containers[0].(map[string]any)["image"])
}

// TestChartMPS_Mounts_ReachContainers: mounts of the service below the directory of the driver reach the host, and through it containers
// and the plugin, which uses the same path.
func TestChartMPS_Mounts_ReachContainers(t *testing.T) {
	service := mpsService(t, parse(t, render(t, "--set", "mps.enabled=true,driverName=gpu.example.com")), "prism-mps")
	hostPaths := map[string]string{}
	for _, volume := range service.Spec.Template.Spec.Volumes {
		hostPaths[volume.Name] = fmt.Sprint(volume.HostPath.Path, " ", *volume.HostPath.Type)
	}
	mounts := map[string]string{}
	for _, mount := range service.Spec.Template.Spec.Containers[0].VolumeMounts {
		propagation := corev1.MountPropagationNone
		if mount.MountPropagation != nil {
			propagation = *mount.MountPropagation
		}
		mounts[mount.MountPath] = fmt.Sprintf("%s %s read-only %t", hostPaths[mount.Name], propagation, mount.ReadOnly)
	}
	assert.Equal(t, map[string]string{
		"/run/gpu.example.com": "/run/gpu.example.com DirectoryOrCreate Bidirectional read-only false",
		"/dev":                 "/dev Directory None read-only false",
		"/host":                "/ Directory HostToContainer read-only true",
	}, mounts)
}

// TestChartMPS_Selector_OnlyItsPods: neither DaemonSet selects the other's pods.
func TestChartMPS_Selector_OnlyItsPods(t *testing.T) {
	rendered := parse(t, render(t, "--set", "mps.enabled=true"))
	service := mpsService(t, rendered, "prism-mps")
	labels := service.Spec.Template.Labels
	for key, value := range service.Spec.Selector.MatchLabels {
		assert.Equal(t, value, labels[key], key)
	}
	plugin := dig(t, rendered.only(t, "DaemonSet"), "spec", "selector", "matchLabels").(map[string]any)
	assert.NotEqual(t, plugin["app.kubernetes.io/component"], labels["app.kubernetes.io/component"])
}

// TestChartNotes_MPS_WarningsWhereTheyApply: the notes name settings without effect, and missing settings for the configuration.
func TestChartNotes_MPS_WarningsWhereTheyApply(t *testing.T) {
	const missing, user = "mps.enabled is false", "mps.userID has no effect"
	entry := `config.map={"default": {"apiVersion": "gpu.prism.dev/v1alpha1", "kind": "NodeConfig", "gpus": [{"modes": ["whole", "mps"]}]}}`
	for args, want := range map[string][]string{
		"":                        nil,
		"--set mps.userID=1000":   {user},
		"--set mps.userID=0":      {user},
		"--set-json " + entry:     {missing, "(config.map: default)", "--set mps.enabled=true"},
		"--set mps.enabled=true":  {"DaemonSet prism-system/prism-mps", "helm upgrade does not replace it"},
		"--set config.map.a=text": nil,
		`--set-json config.map={"file": "version: v1\nsharing: {mps: {resources: []}}"}`: {missing, "(config.map: file)"},
	} {
		flag, value, _ := strings.Cut(args, " ")
		var line []string
		if flag != "" {
			line = []string{flag, value}
		}
		printed := notes(t, line...)
		for _, text := range want {
			assert.Contains(t, printed, text, args)
		}
		if want == nil {
			assert.NotContains(t, printed, missing, args)
			assert.NotContains(t, printed, user, args)
		}
	}
	assert.NotContains(t, notes(t, "--set-json", entry, "--set", "mps.enabled=true"), missing)
}

// TestChartMPS_Enabled_DaemonSet: the service runs only if it is enabled, also with the values of a fork of NVIDIA's device plugin.
func TestChartMPS_Enabled_DaemonSet(t *testing.T) {
	assert.NotContains(t, parse(t, render(t)), "DaemonSet/prism-mps")
	assert.Contains(t, parse(t, render(t, "--set", "mps.enabled=true,mps.userID=1000")), "DaemonSet/prism-mps")
}

// TestChartMPS_Command_EveryFlagRead: the program accepts the flags of the DaemonSet, and without values uses its defaults.
func TestChartMPS_Command_EveryFlagRead(t *testing.T) {
	load := func(name string, args ...string) *config.MPSD {
		command := mpsService(t, parse(t, render(t, args...)), name).Spec.Template.Spec.Containers[0].Command
		loaded, err := config.LoadMPSD(command[1:], func(string) string { return "" })
		require.NoError(t, err)
		return loaded
	}
	defaults, err := config.LoadMPSD(nil, func(string) string { return "" })
	require.NoError(t, err)
	assert.Equal(t, defaults, load("prism-mps", "--set", "mps.enabled=true"))
	assert.Equal(t, &config.MPSD{
		DriverName: "gpu.example.com", HostRoot: "/host", DriverRoot: "/run/nvidia/driver", SearchDirs: config.Names{"/opt/nvidia/lib", "/opt/nvidia/bin"}, RunDir: "/run/gpu.example.com", Hardening: "Full",
		Logging: config.Logging{LogVerbosity: 6, LogFormat: "json"},
	}, load("prism-everything-mps", "--values", "testdata/values/everything.yaml"))
}
