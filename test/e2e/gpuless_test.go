package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// bareNode is the node without a GPU, if the cluster has one.
const bareNode = "n2"

// TestNodeWithoutGPU_IsSilent: the plugin runs there, publishes and reports nothing, and finds a GPU that is plugged in. The test runs on a
// separate cluster, with NODES=3 and GPU_NODES=2.
func TestNodeWithoutGPU_IsSilent(t *testing.T) {
	c := open(t)
	require.GreaterOrEqual(t, c.nodes(t), 3, "boot the cluster with NODES=3 GPU_NODES=2, as hack/e2e.sh does for this test")
	var pods corev1.PodList
	eventually(t, startLimit, func() error {
		err := c.get(&pods, "pods", "--namespace", system, "--selector", pluginSelector, "--field-selector", "spec.nodeName="+bareNode)
		if err == nil && (len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) != 1 || !pods.Items[0].Status.ContainerStatuses[0].Ready) {
			err = fmt.Errorf("no ready plugin on %s", bareNode)
		}
		return err
	})
	pod := &pods.Items[0]
	assert.Zero(t, pod.Status.ContainerStatuses[0].RestartCount)
	logs := c.must(t, c.kubectl("logs", "--namespace", system, pod.Name)...)
	assert.Contains(t, logs, "Idle: the node has no NVIDIA GPU")
	require.NoError(t, c.hasSlices(bareNode, false))
	require.NoError(t, c.silentAbout(bareNode))
	resident := c.must(t, c.onBareNode("sh", "-c", `for p in /proc/[0-9]*; do case $(cat $p/comm) in prism-kubelet*) grep VmRSS $p/status ;; esac; done`)...)
	t.Logf("resident memory of an idle plugin: %s", resident)

	simgpu := filepath.Join(c.root, "bin/simgpu")
	c.must(t, c.onBareNode(simgpu, "create", "--model", "l40s", "--count", "1")...)
	t.Cleanup(func() {
		c.must(t, c.onBareNode(simgpu, "destroy")...)
		c.must(t, c.kubectl("delete", "pod", "--namespace", system, pod.Name)...)
		eventually(t, startLimit, func() error { return c.hasSlices(bareNode, false) })
	})
	eventually(t, startLimit, func() error { return c.hasSlices(bareNode, true) })
	require.NoError(t, c.silentAbout(bareNode))
}

func (c *cluster) onBareNode(args ...string) []string {
	return c.localcluster(append([]string{"exec", bareNode}, args...)...)
}

// hasSlices returns an error unless the node has ResourceSlices or, without want, none.
func (c *cluster) hasSlices(node string, want bool) error {
	published, err := c.resourceSlices()
	if err != nil {
		return err
	}
	found := 0
	for i := range published {
		if name := published[i].Spec.NodeName; name != nil && *name == node {
			found++
		}
	}
	if found > 0 != want {
		return fmt.Errorf("node %s has %d ResourceSlices", node, found)
	}
	return nil
}

// silentAbout returns an error if the plugin reported Warnings about a node.
func (c *cluster) silentAbout(node string) error {
	var events corev1.EventList
	if err := c.get(&events, "events", "--all-namespaces", "--field-selector", "involvedObject.name="+node+",type=Warning"); err != nil {
		return err
	}
	for i := range events.Items {
		if events.Items[i].ReportingController == driverName {
			return fmt.Errorf("Event %s of node %s: %s", events.Items[i].Reason, node, events.Items[i].Message)
		}
	}
	return nil
}
