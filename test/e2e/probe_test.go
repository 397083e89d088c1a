package e2e

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// TestWholeProbe: with the token of its own pod, a plugin finds out whether this API server supports counters, and stores nothing.
func TestWholeProbe(t *testing.T) {
	ns := inParallel(t, 0)
	line := ns.as(ns.token("--bound-object-kind", "Pod", "--bound-object-name", ns.plugin(t).Name))
	config, err := clientcmd.BuildConfigFromFlags("", line[len(line)-1])
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	version, err := client.Discovery().ServerVersion()
	require.NoError(t, err)
	minor, err := strconv.Atoi(version.Minor)
	require.NoError(t, err)

	kept, err := kube.Probe{Client: client, DriverName: driverName, NodeName: nodeName}.PartitionableDevices(t.Context())
	require.NoError(t, err)
	t.Logf("Kubernetes %s keeps counters: %t", version.GitVersion, kept)
	assert.Equal(t, minor >= 36, kept, "counters are on by default since 1.36")
	counted, err := kube.Probe{Client: client, DriverName: driverName, NodeName: nodeName}.CountsShares(t.Context())
	require.NoError(t, err)
	assert.Equal(t, minor >= 36, counted, "the tests run on no 1.36 before 1.36.2")
	slices, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, slice := range slices.Items {
		assert.NotContains(t, slice.Spec.Pool.Name, "probe")
	}

	elsewhere := kube.Probe{Client: client, DriverName: driverName, NodeName: "n7", NodeUID: "1"}
	_, err = elsewhere.PartitionableDevices(t.Context())
	assert.ErrorContains(t, err, "the plugin of node 'n0' may not write ResourceSlices of node 'n7'")
}
