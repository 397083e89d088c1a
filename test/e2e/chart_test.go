package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWholeRollingUpdate: no claim is refused while one plugin hands over to the next.
func TestWholeRollingUpdate(t *testing.T) {
	ns := alone(t)
	before := ns.plugin(t)
	ns.must(t, ns.kubectl("rollout", "restart", "--namespace", system, "daemonset/"+pluginName)...)
	ns.apply("nine-pods/job.yaml")
	ns.do("wait", "--for=jsonpath={.status.ready}=8", "--timeout=90s", "job/nine-pods")
	ns.rolledOut(t)
	after := ns.plugin(t)
	require.NotEqual(t, before.UID, after.UID)
	assert.Zero(t, after.Status.ContainerStatuses[0].RestartCount)
	running, _ := ns.podsOf("nine-pods")
	for _, name := range running[:2] {
		ns.sees(name, "main", ns.grantedTo(ns.pod(name), "gpu")...)
	}
	require.NoError(t, ns.silence())
	ns.offers(t, ns.gpus.size, startLimit)
}

// TestWholeDeviceMetadata: a container finds files about its devices where the chart's value asks for them.
func TestWholeDeviceMetadata(t *testing.T) {
	c := open(t)
	c.withValue(t, "deviceMetadata=true")
	ns := alone(t)
	ns.apply("device-metadata/pod.yaml")
	grants := ns.grantedTo(ns.ready("device-metadata"), "gpu")
	ns.sees("device-metadata", "main", grants...)
	metadata := ns.do("logs", "device-metadata")
	assert.Contains(t, metadata, "metadata.resource.k8s.io/v1beta1")
	assert.Contains(t, metadata, grants[0].UUID)
	require.NoError(t, ns.silence())
}

// TestWholeExtendedResource: a pod without a claim gets a GPU where the chart's value names a resource.
func TestWholeExtendedResource(t *testing.T) {
	needs(t, extendedResources)
	c := open(t)
	c.withValue(t, "deviceClasses.gpu.extendedResourceName=nvidia.com/gpu")
	ns := alone(t)
	ns.apply("extended-resource/pod.yaml")
	pod := ns.ready("extended-resource")
	require.NotNil(t, pod.Status.ExtendedResourceClaimStatus)
	ns.sees("extended-resource", "main", ns.granted(pod.Status.ExtendedResourceClaimStatus.ResourceClaimName)...)
	require.NoError(t, ns.silence())
}

// withValue changes a value of the installed chart until the test has ended.
func (c *cluster) withValue(t *testing.T, value string) {
	t.Helper()
	c.helm(t, "upgrade", "prism", filepath.Join(c.root, "deployments/helm/prism"), "--reuse-values", "--set", value)
	t.Cleanup(func() {
		c.helm(t, "rollback", "prism")
		c.plugin(t)
	})
	c.plugin(t)
}

// helm runs helm for the chart's release and waits for what it changes.
func (c *cluster) helm(t *testing.T, args ...string) {
	t.Helper()
	c.must(t, append(c.helmLine(args...), "--wait", "--timeout", "2m")...)
}

// helmLine is a command line of helm for the chart's release.
func (c *cluster) helmLine(args ...string) []string {
	return append([]string{filepath.Join(c.variable("PATH"), "helm"), "--kubeconfig", c.variable("KUBECONFIG"), "--namespace", system}, args...)
}
