package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestConfigOfTwoNodes: each node uses the configuration that its label names, and a change of one does not affect the other. The test runs
// on a separate cluster, with NODES=2.
func TestConfigOfTwoNodes(t *testing.T) {
	c := open(t)
	require.GreaterOrEqual(t, c.nodes(t), 2, "boot the cluster with NODES=2, as hack/e2e.sh does for this test")
	needs(t, partitionableDevices)
	ns := exclusive(t)
	const other = "n1"
	devices := (nodeGPUs - firstMIG) * placements
	eventually(t, startLimit, func() error { return ns.migDevicesOn(nodeName, devices) })
	eventually(t, startLimit, func() error { return ns.migDevicesOn(other, devices) })

	t.Cleanup(func() { _, _ = ns.run("", ns.kubectl("label", "node", other, configLabel+"-")...) }) // the test may have removed it
	ns.must(t, ns.kubectl("label", "--overwrite", "node", other, configLabel+"=whole")...)
	eventually(t, startLimit, func() error { return ns.migDevicesOn(other, 0) })
	require.NoError(t, ns.migDevicesOn(nodeName, devices))
	ns.createMIG("mig", "1g.10gb", 7)
	require.Equal(t, nodeName, ns.ready("mig").Spec.NodeName)

	ns.must(t, ns.kubectl("label", "node", other, configLabel+"-")...)
	eventually(t, startLimit, func() error { return ns.migDevicesOn(other, devices) })
}

// nodes returns the number of nodes in the cluster.
func (c *cluster) nodes(t *testing.T) int {
	t.Helper()
	var nodes corev1.NodeList
	require.NoError(t, c.get(&nodes, "nodes"))
	return len(nodes.Items)
}

// migDevicesOn returns an error unless this number of placements of a node is published.
func (c *cluster) migDevicesOn(node string, want int) error {
	published, err := c.resourceSlices()
	if err != nil {
		return err
	}
	n := 0
	for i := range published {
		for _, device := range published[i].Spec.Devices {
			if name := published[i].Spec.NodeName; name != nil && *name == node && *device.Attributes["type"].StringValue == "mig" {
				n++
			}
		}
	}
	if n != want {
		return fmt.Errorf("%d MIG devices of node %s are published, not %d", n, node, want)
	}
	return nil
}
