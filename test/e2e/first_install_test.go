package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFirstInstall_ResourceLimits_PodRuns: with the chart's defaults a pod with a limit of nvidia.com/gpu gets a GPU, also if it was
// created before the plugin and the controller ran.
func TestFirstInstall_ResourceLimits_PodRuns(t *testing.T) {
	needs(t, extendedResources)
	c := open(t)
	c.reinstall(t)
	ns := exclusive(t)
	ns.apply("extended-resource/pod.yaml")
	ns.do("wait", "--for=condition=Ready", "--timeout="+startLimit.String(), "pod/extended-resource")
	status := ns.pod("extended-resource").Status.ExtendedResourceClaimStatus
	require.NotNil(t, status)
	ns.sees("extended-resource", "main", ns.granted(status.ResourceClaimName)...)
	require.NoError(t, ns.silence())
	classes, err := c.resourceNames()
	require.NoError(t, err)
	assert.Equal(t, controllerName, classes["nvidia.com/gpu"].Labels["app.kubernetes.io/managed-by"])
}

// reinstall installs the chart with its defaults, without waiting for anything, and restores the installation after the test.
func (c *cluster) reinstall(t *testing.T) {
	t.Helper()
	helm := func(args ...string) string {
		return c.must(t, append([]string{
			filepath.Join(c.variable("PATH"), "helm"), "--kubeconfig", c.variable("KUBECONFIG"), "--namespace", system,
		}, args...)...)
	}
	values := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte(helm("get", "values", "prism", "--output", "yaml")), 0o600))
	tag, err := os.ReadFile(filepath.Join(c.root, "dist/image.tag"))
	require.NoError(t, err)
	chart := filepath.Join(c.root, "deployments/helm/prism")
	helm("uninstall", "prism", "--wait", "--timeout", startLimit.String())
	t.Cleanup(func() {
		helm("uninstall", "prism", "--wait", "--timeout", startLimit.String())
		helm("install", "prism", chart, "--values", values, "--wait", "--timeout", startLimit.String())
		c.plugin(t)
		c.advertises(t, c.gpus.size, startLimit)
		c.advertisesMIG(t, startLimit)
	})
	// ResourceSlices of the uninstalled driver stay for a while: a pod that is scheduled with them gets to a node without the driver.
	c.must(t, c.kubectl("delete", "resourceslices", "--field-selector", "spec.driver="+driverName)...)
	helm("install", "prism", chart, "--set", "image.tag="+string(tag[:len(tag)-1]))
}
