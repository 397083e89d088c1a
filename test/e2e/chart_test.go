package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWholeDeviceMetadata: by default a container finds files about its devices.
func TestWholeDeviceMetadata(t *testing.T) {
	c := open(t)
	c.withValue(t, "deviceClasses.gpu.extendedResourceName=nvidia.com/gpu")
	ns := exclusive(t)
	ns.apply("device-metadata/pod.yaml")
	grants := ns.grantedTo(ns.ready("device-metadata"), "gpu")
	ns.sees("device-metadata", "main", grants...)
	metadata := ns.do("logs", "device-metadata")
	assert.Contains(t, metadata, "metadata.resource.k8s.io/v1beta1")
	assert.Contains(t, metadata, "metadata.resource.k8s.io/v1alpha1")
	assert.Regexp(t, `"schemaVersion":\s*\{\s*"int":\s*1\s*\}`, metadata)
	assert.Contains(t, metadata, grants[0].UUID)
	ns.extendedResource()
	require.NoError(t, ns.silence())
}

// extendedResource checks that a pod without a claim gets a GPU if a value of the chart sets a resource name for the chart's own class.
func (ns *namespace) extendedResource() {
	ns.t.Helper()
	if minor, err := minorVersion(); err != nil || minor < features[extendedResources].since {
		require.NoError(ns.t, err)
		return
	}
	classes, err := ns.resourceNames()
	require.NoError(ns.t, err)
	require.Equal(ns.t, gpuClass, classes["nvidia.com/gpu"].Name)
	ns.apply("extended-resource/pod.yaml")
	status := ns.ready("extended-resource").Status.ExtendedResourceClaimStatus
	require.NotNil(ns.t, status)
	ns.sees("extended-resource", "main", ns.granted(status.ResourceClaimName)...)
}

// withValue changes a value of the installed chart until the end of the test.
func (c *cluster) withValue(t *testing.T, value string) {
	t.Helper()
	c.helm(t, "upgrade", "prism", filepath.Join(c.root, "deployments/helm/prism"), "--reuse-values", "--set", value)
	t.Cleanup(func() {
		c.helm(t, "rollback", "prism")
		c.plugin(t)
	})
	c.plugin(t)
}

// helm runs helm for the chart's release and waits for the changed objects. The default watcher of --wait would also wait for pods of the
// MPS service, which are replaced only when they are deleted.
func (c *cluster) helm(t *testing.T, args ...string) {
	t.Helper()
	c.must(t, append(c.helmLine(args...), "--wait=legacy", "--timeout", startLimit.String())...)
}

// helmLine returns a command line of helm for the chart's release.
func (c *cluster) helmLine(args ...string) []string {
	return append([]string{filepath.Join(c.variable("PATH"), "helm"), "--kubeconfig", c.variable("KUBECONFIG"), "--namespace", system}, args...)
}
