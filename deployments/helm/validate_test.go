package helm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestChartValidate_HelmTest_RestrictedPodWithAnyDevice: a hook of helm test is no object of the release.
func TestChartValidate_HelmTest_RestrictedPodWithAnyDevice(t *testing.T) {
	rendered := parse(t, render(t, "--set", "driverName=gpu.example.com"))
	template, pod := &resourceapi.ResourceClaimTemplate{}, &corev1.Pod{}
	for name, into := range map[string]any{"ResourceClaimTemplate/prism-validate": template, "Pod/prism-validate": pod} {
		require.Contains(t, rendered, name)
		assert.Equal(t, "test", rendered[name].GetAnnotations()["helm.sh/hook"], name)
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(rendered[name].Object, into, true))
	}
	var classes []string
	for _, choice := range template.Spec.Spec.Devices.Requests[0].FirstAvailable {
		classes = append(classes, choice.DeviceClassName)
		assert.Contains(t, rendered, "DeviceClass/"+choice.DeviceClassName)
	}
	assert.Equal(t, []string{"gpu.example.com", "mig.gpu.example.com", "timeslice.gpu.example.com", "mps.gpu.example.com"}, classes)
	container := pod.Spec.Containers[0]
	assert.Equal(t, []string{"/usr/bin/prism-validate"}, container.Command)
	assert.Equal(t, pod.Spec.ResourceClaims[0].Name, container.Resources.Claims[0].Name)
	assert.Equal(t, template.Name, *pod.Spec.ResourceClaims[0].ResourceClaimTemplateName)
	assert.True(t, *pod.Spec.SecurityContext.RunAsNonRoot)
	assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.Spec.SecurityContext.SeccompProfile.Type)
	assert.False(t, *container.SecurityContext.AllowPrivilegeEscalation)
	assert.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop)
	assert.NotContains(t, parse(t, render(t, "--set", "deviceClasses.create=false")), "Pod/prism-validate", "the classes may have other names")
}
