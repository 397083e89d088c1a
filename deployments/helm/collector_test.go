package helm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/config"
)

// withCollector are values with the collector of performance counters.
const withCollector = tools + ",monitorDevices=PerNode,deviceClasses.perfmonDevices=PerGPU,profiler.collector.enabled=true"

// collector is the DaemonSet of the collector, decoded like in the API server.
func collector(t *testing.T, args ...string) *appsv1.DaemonSet {
	t.Helper()
	rendered := parse(t, render(t, args...))
	require.Contains(t, rendered, "DaemonSet/prism-collector")
	decoded := &appsv1.DaemonSet{}
	object := rendered["DaemonSet/prism-collector"].Object
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, decoded, true))
	return decoded
}

func TestChartCollector_NotEnabled_NothingRendered(t *testing.T) {
	for _, args := range [][]string{nil, {"--set", tools}, {"--set", tools + ",profiler.collector=null"}} { // null: the values of an earlier chart
		rendered := parse(t, render(t, args...))
		for key, object := range rendered {
			assert.NotEqual(t, "collector", object.GetLabels()["app.kubernetes.io/component"], key)
		}
		variables := environment(t, rendered)
		assert.NotContains(t, variables, "PRISM_COLLECTOR")
		assert.NotContains(t, variables, "PRISM_COLLECTOR_VERSION")
	}
}

// TestChartCollector_Pod_NoFurtherRights: the container has one capability and one directory of the host, and is not privileged.
func TestChartCollector_Pod_NoFurtherRights(t *testing.T) {
	pod := collector(t, "--set", withCollector+",stateDir=/data/prism/").Spec.Template.Spec
	assert.False(t, pod.HostPID || pod.HostNetwork || pod.HostIPC)
	assert.False(t, *pod.AutomountServiceAccountToken)
	assert.Nil(t, pod.SecurityContext)
	var hostPaths []string
	for _, volume := range pod.Volumes {
		if volume.HostPath != nil {
			hostPaths = append(hostPaths, volume.HostPath.Path)
		} else {
			assert.NotNil(t, volume.EmptyDir, volume.Name)
		}
	}
	assert.Equal(t, []string{"/data/prism/collector"}, hostPaths)
	require.Len(t, pod.Containers, 1)
	yes, root := true, int64(0)
	assert.Equal(t, &corev1.SecurityContext{
		RunAsUser: &root, RunAsGroup: &root, ReadOnlyRootFilesystem: &yes,
		Capabilities:    &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"SYS_ADMIN"}},
		SeccompProfile:  &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
	}, pod.Containers[0].SecurityContext)
	mounts := map[string]string{}
	for _, mount := range pod.Containers[0].VolumeMounts {
		mounts[mount.MountPath] = mount.Name
		assert.Nil(t, mount.MountPropagation, "its mounts do not reach the host")
	}
	assert.Equal(t, map[string]string{
		"/run/prism": "work", "/run/prism/programs": "programs", "/tmp": "work", "/data/prism/collector": "collector",
	}, mounts)
	require.Len(t, pod.InitContainers, 1)
	place := pod.InitContainers[0].SecurityContext
	assert.Equal(t, &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, place.Capabilities)
	assert.False(t, *place.AllowPrivilegeEscalation)
}

// TestChartCollector_Claim_AllGPUsByAdminAccess: the container has the GPUs of its node by a claim for the monitor device.
func TestChartCollector_Claim_AllGPUsByAdminAccess(t *testing.T) {
	names := map[string]bool{}
	for _, driver := range []string{"gpu.prism.dev", "gpu.example.com"} {
		args := []string{"--set", withCollector + ",driverName=" + driver}
		pod := collector(t, args...).Spec.Template.Spec
		require.Len(t, pod.ResourceClaims, 1)
		name := *pod.ResourceClaims[0].ResourceClaimTemplateName
		names[name] = true
		assert.Equal(t, []corev1.ResourceClaim{{Name: pod.ResourceClaims[0].Name}}, pod.Containers[0].Resources.Claims)

		rendered := parse(t, render(t, args...))
		require.Contains(t, rendered, "ResourceClaimTemplate/"+name)
		template := &resourceapi.ResourceClaimTemplate{}
		object := rendered["ResourceClaimTemplate/"+name].Object
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, template, true))
		yes := true
		assert.Equal(t, resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpus", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: "monitor." + driver, AdminAccess: &yes, Tolerations: []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}},
		}}}}, template.Spec.Spec.Devices)
		assert.Contains(t, rendered, "DeviceClass/monitor."+driver)
		assert.Contains(t, rendered, "DeviceClass/perfmon."+driver)
	}
	assert.Len(t, names, 2, "the spec of a template is immutable")
}

// TestChartCollector_Version_HighestOrNamed: the collector and the plugin use the same version.
func TestChartCollector_Version_HighestOrNamed(t *testing.T) {
	several := withCollector
	for i, version := range []string{"2023.4.4", "2025.5", "2025.10.08", "2025.5.9.1"} {
		at := "profiler.tools[" + string(rune('0'+i)) + "]."
		several += "," + at + "version=" + version + "," + at + "image=nsys:" + version + "," + at + "path=/opt/" + version
	}
	for set, want := range map[string]string{
		withCollector: "2025.5.1",
		several:       "2025.10.08",
		several + ",profiler.collector.toolVersion=2023.4.4":   "2023.4.4",
		several + ",profiler.collector.toolVersion=2025.5.9.1": "2025.5.9.1",
	} {
		container := collector(t, "--set", set).Spec.Template.Spec.Containers[0]
		assert.Equal(t, []string{"/run/prism/programs/prism-tool", "collect"}, container.Command[:2])
		loaded, err := config.LoadTool(container.Command[2:], func(string) string { return "" })
		require.NoError(t, err)
		assert.Equal(t, want, loaded.Version)
		assert.Equal(t, "/var/lib/gpu.prism.dev", loaded.StateDir)
		assert.Equal(t, "/run/prism", loaded.WorkDir)
		if set != withCollector {
			assert.Equal(t, "/opt/"+want, loaded.Path)
			assert.Equal(t, "nsys:"+want, container.Image)
		}
		variables := environment(t, parse(t, render(t, "--set", set)))
		assert.Equal(t, "true", variables["PRISM_COLLECTOR"])
		assert.Equal(t, want, variables["PRISM_COLLECTOR_VERSION"])
	}
}

// TestChartCollector_Nodes_AsThePlugin: the collector runs on all nodes of the plugin, one on each at any time.
func TestChartCollector_Nodes_AsThePlugin(t *testing.T) {
	args := []string{"--values", "testdata/values/everything.yaml", "--set", "fullnameOverride=prism"}
	its := collector(t, args...)
	plugin := exporterSet(t, parse(t, render(t, args...)), "prism-kubelet-plugin").Spec.Template.Spec
	pod := its.Spec.Template.Spec
	assert.Equal(t, plugin.NodeSelector, pod.NodeSelector)
	assert.Equal(t, plugin.Affinity, pod.Affinity)
	assert.Equal(t, plugin.Tolerations, pod.Tolerations)
	assert.Equal(t, plugin.PriorityClassName, pod.PriorityClassName)
	assert.Equal(t, plugin.ImagePullSecrets, pod.ImagePullSecrets)
	assert.Equal(t, plugin.ServiceAccountName, pod.ServiceAccountName)
	assert.Equal(t, 0, its.Spec.UpdateStrategy.RollingUpdate.MaxSurge.IntValue())
	for key, value := range its.Spec.Selector.MatchLabels {
		assert.Equal(t, value, its.Spec.Template.Labels[key], key)
	}
	assert.Equal(t, "collector", its.Spec.Selector.MatchLabels["app.kubernetes.io/component"])
}

// TestChartCollector_MissingValues_RefusedByName: the collector needs versions, and the devices by which claims get counters and it the GPUs.
func TestChartCollector_MissingValues_RefusedByName(t *testing.T) {
	for set, want := range map[string]string{
		",monitorDevices=Never":                      "at '/monitorDevices': value must be 'PerNode'",
		",deviceClasses.perfmonDevices=Never":        "at '/deviceClasses/perfmonDevices': value must be 'PerGPU'",
		",profiler.tools=null":                       "at '/profiler'",
		",profiler.collector.toolVersion=2024.1":     `profiler.collector.toolVersion is "2024.1", which profiler.tools does not have; it has: 2025.5.1`,
		",profiler.collector.toolVersion=latest":     "at '/profiler/collector/toolVersion'",
		",profiler.collector.enabled=yes":            "at '/profiler/collector/enabled': got string, want boolean",
		",profiler.collector.securityContext.user=0": "at '/profiler/collector': additional properties 'securityContext' not allowed",
		",profiler.policy.maxDuration=1.5h":          "at '/profiler/policy/maxDuration'",
		",profiler.policy.maxDuration=500ms":         "at '/profiler/policy/maxDuration'",
	} {
		_, stderr, err := template(t, "--set", withCollector+set)
		require.Error(t, err, set)
		assert.Contains(t, stderr, want, set)
	}
	_, stderr, err := template(t, "--set", "monitorDevices=PerNode,deviceClasses.perfmonDevices=PerGPU,profiler.collector.enabled=true")
	require.Error(t, err)
	assert.Contains(t, stderr, "at '/profiler/tools': minItems: got 0, want 1")
}

// TestChartNotes_Collector_NamesTheLabel: without the label of the namespace the collector gets no GPUs.
func TestChartNotes_Collector_NamesTheLabel(t *testing.T) {
	const label = "kubectl label namespace prism-system resource.kubernetes.io/admin-access=true"
	assert.NotContains(t, notes(t, "--set", tools), label)
	printed := notes(t, "--set", withCollector)
	assert.Contains(t, printed, label)
	assert.Contains(t, printed, "DaemonSet prism-system/prism-collector")
}
