package helm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestChart_ImageDigest_ReplacesTag names the same image in both programs, without a tag.
func TestChart_ImageDigest_ReplacesTag(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	rendered := parse(t, render(t, "--set", "image.repository=registry.example.com/prism,image.tag=v1,image.digest="+digest))
	for _, key := range []string{"DaemonSet/prism-kubelet-plugin", "Deployment/prism-controller"} {
		containers := dig(t, rendered[key], "spec", "template", "spec", "containers").([]any)
		assert.Equal(t, "registry.example.com/prism@"+digest, containers[0].(map[string]any)["image"], key)
	}
}

// TestChartResourceQuota_Priorities_BothProgramsCounted: it counts the pods of both programs by their priority classes.
func TestChartResourceQuota_Priorities_BothProgramsCounted(t *testing.T) {
	rendered := parse(t, render(t, "--set", "resourceQuota.create=true,kubeletPlugin.priorityClassName=gpu-node"))
	quota := rendered.only(t, "ResourceQuota")
	assert.Equal(t, map[string]any{"pods": "10000"}, dig(t, quota, "spec", "hard"))
	expressions := dig(t, quota, "spec", "scopeSelector", "matchExpressions").([]any)
	assert.Equal(t, []any{map[string]any{
		"scopeName": "PriorityClass", "operator": "In", "values": []any{"gpu-node", "system-cluster-critical"},
	}}, expressions)
	for key, priority := range map[string]string{"DaemonSet/prism-kubelet-plugin": "gpu-node", "Deployment/prism-controller": "system-cluster-critical"} {
		assert.Equal(t, priority, dig(t, rendered[key], "spec", "template", "spec", "priorityClassName"))
	}
}

// TestChartSecurityContextConstraints_Account_MayUseThem: the account that the plugin runs as may use them.
func TestChartSecurityContextConstraints_Account_MayUseThem(t *testing.T) {
	rendered := parse(t, render(t, "--set", "openshift.securityContextConstraints=privileged,serviceAccount.name=mine"))
	binding := rendered["RoleBinding/prism-kubelet-plugin-scc"]
	assert.Equal(t, map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:openshift:scc:privileged"},
		dig(t, binding, "roleRef"))
	assert.Equal(t, []any{map[string]any{"kind": "ServiceAccount", "name": "mine", "namespace": namespace}}, dig(t, binding, "subjects"))
	assert.Equal(t, "system:serviceaccount:"+namespace+":mine", account(t, rendered))
}

// TestChartController_PodLabelsAndAnnotations_OnItsPods: labels, annotations and the PodMonitor reach the controller's pods.
func TestChartController_PodLabelsAndAnnotations_OnItsPods(t *testing.T) {
	rendered := parse(t, render(t, "--set", "controller.podLabels.team=gpu,controller.podAnnotations.note=x,metrics.podMonitor.create=true"))
	deployment := rendered["Deployment/prism-controller"]
	labels := dig(t, deployment, "spec", "template", "metadata", "labels").(map[string]any)
	assert.Equal(t, "gpu", labels["team"])
	assert.NotContains(t, dig(t, deployment, "spec", "selector", "matchLabels"), "team")
	assert.Equal(t, map[string]any{"note": "x"}, dig(t, deployment, "spec", "template", "metadata", "annotations"))
	for key, value := range dig(t, rendered["PodMonitor/prism-controller"], "spec", "selector", "matchLabels").(map[string]any) {
		assert.Equal(t, value, labels[key], key)
	}
	assert.Equal(t, "http", dig(t, rendered["PodMonitor/prism-controller"], "spec", "podMetricsEndpoints").([]any)[0].(map[string]any)["port"])
}

// TestChartMetadata_UnsupportedFeatures_NotNamed: the description of the chart names only supported features.
func TestChartMetadata_UnsupportedFeatures_NotNamed(t *testing.T) {
	shown, complaint, err := helm(t, "show", "chart", "prism")
	assert.NoError(t, err, complaint)
	for _, later := range []string{"profil", "metrics"} {
		assert.NotContains(t, strings.ToLower(shown), later)
	}
}
