package helm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// policyOf returns the peers of each port in a NetworkPolicy for incoming connections. The policy must select the same pods as its
// workload.
func policyOf(t *testing.T, rendered map[string]*unstructured.Unstructured, workload, name string) map[string][]networkingv1.NetworkPolicyPeer {
	t.Helper()
	object := rendered["NetworkPolicy/"+name]
	require.NotNil(t, object, name)
	var policy networkingv1.NetworkPolicy
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &policy, true))
	selected, _, err := unstructured.NestedStringMap(rendered[workload+"/"+name].Object, "spec", "selector", "matchLabels")
	require.NoError(t, err)
	assert.Equal(t, selected, policy.Spec.PodSelector.MatchLabels)
	assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes)
	peers := map[string][]networkingv1.NetworkPolicyPeer{}
	for _, rule := range policy.Spec.Ingress {
		require.Len(t, rule.Ports, 1)
		peers[rule.Ports[0].Port.String()] = rule.From
	}
	return peers
}

// TestChart_NetworkPolicies_OffUnlessSet: the NetworkPolicies of the plugin and of the controller allow ingress to each port from the pods
// that use it, and are not created by default.
func TestChart_NetworkPolicies_OffUnlessSet(t *testing.T) {
	const plugin, controller = "prism-kubelet-plugin", "prism-controller"
	for name := range parse(t, render(t, "--set-json", `profiler.tools=[{"version":"1.2.3","image":"i","path":"/p"}]`)) {
		assert.NotContains(t, name, "NetworkPolicy/")
	}
	type peers = []networkingv1.NetworkPolicyPeer
	selects := func(labels map[string]string) peers {
		return peers{{PodSelector: &metav1.LabelSelector{MatchLabels: labels}}}
	}
	on := []string{"--set", "kubeletPlugin.networkPolicy.create=true,controller.networkPolicy.create=true"}
	rendered := parse(t, render(t, on...))
	assert.Equal(t, map[string]peers{"http": selects(nil)}, policyOf(t, rendered, "DaemonSet", plugin))
	assert.Equal(t, map[string]peers{"http": selects(nil), "admission": nil}, policyOf(t, rendered, "Deployment", controller))

	rendered = parse(t, render(t, append(on, "--set", "controller.admission.enabled=false")...))
	assert.Equal(t, map[string]peers{"http": selects(nil)}, policyOf(t, rendered, "Deployment", controller), "there is no such port")

	monitoring := peers{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "monitoring"}}}}
	rendered = parse(t, render(t, "--values", everything))
	controllers, _, err := unstructured.NestedStringMap(rendered["Deployment/prism-everything-controller"].Object, "spec", "selector", "matchLabels")
	require.NoError(t, err)
	assert.Equal(t, map[string]peers{"http": monitoring, "reports": selects(controllers)}, policyOf(t, rendered, "DaemonSet", "prism-everything-kubelet-plugin"))
	assert.Equal(t, map[string]peers{"http": monitoring, "admission": {{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/28"}}}},
		policyOf(t, rendered, "Deployment", "prism-everything-controller"))
}
