package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStatus_ParametersUnsorted_Written: kubectl sorts the fields of the objects that it sends, controllers that encode a struct do not.
// The server keeps opaque parameters as they were sent, and refuses to apply a status to them.
func TestStatus_ParametersUnsorted_Written(t *testing.T) {
	ns := inParallel(t, 1)
	w := workload{name: "unsorted", ref: "gpu", named: true, request: request{class: gpuClass}}
	claim := fmt.Sprintf(`{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":%q},"spec":{"devices":{
		"requests":[{"name":"gpu","exactly":{"deviceClassName":%q}}],
		"config":[{"opaque":{"driver":%q,"parameters":{"kind":"GPUConfig","apiVersion":"gpu.prism.dev/v1alpha1"}}}]}}}`, w.name, gpuClass, driverName)
	path := "/apis/resource.k8s.io/v1/namespaces/" + ns.name + "/resourceclaims"
	_, err := ns.run(claim, ns.kubectl("create", "--raw", path, "--filename=-")...)
	require.NoError(t, err)
	pod, err := json.Marshal(w.pod())
	require.NoError(t, err)
	require.NoError(t, ns.createText(string(pod)))
	assert.Equal(t, corev1.PodRunning, ns.ready(w.name).Status.Phase)
	ns.says(w.name, "Ready", metav1.ConditionTrue, "Prepared")
	assert.JSONEq(t, `{"kind":"GPUConfig","apiVersion":"gpu.prism.dev/v1alpha1"}`,
		string(ns.claim(w.name).Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw))
}
