package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// configLabel selects a node's configuration among those in values.yaml.
const configLabel = "nvidia.com/device-plugin.config"

// TestConfigByLabel: another label takes effect on free GPUs at once. A GPU in use keeps its layout, gets no new claims, and changes when
// its pod ends.
func TestConfigByLabel(t *testing.T) {
	needs(t, deviceTaints)
	ns := migExclusive(t)
	ns.createMIG("held", "1g.10gb", 7)
	held := ns.migDevice("held")
	plugin := ns.plugin(t)

	ns.configured(t, "whole")
	start := time.Now()
	eventually(t, startLimit, func() error { return ns.migDevicesOf(6, 0) })
	t.Logf("the free GPU changed %.1f s after the label", time.Since(start).Seconds())
	require.NoError(t, ns.migDevicesOf(7, placements), "a GPU in use keeps its layout")
	assert.Len(t, ns.mustTainted(7), placements+1, "and gets no new claims")
	assert.Empty(t, ns.mustTainted(6))
	eventually(t, startLimit, func() error { return ns.measures(plugin, "prism_gpu_layout_changes_pending", "1") })
	ns.createMIG("late", "1g.10gb", 7)
	ns.waits("late")
	ns.sees("held", "main", held)

	ns.delete("pod", "held")
	start = time.Now()
	eventually(t, startLimit, func() error { return ns.migDevicesOf(7, 0) })
	t.Logf("the GPU in use changed %.1f s after its pod", time.Since(start).Seconds())
	ns.advertises(t, ns.gpus.size, startLimit)
	assert.Empty(t, ns.mustTainted(7))

	ns.configured(t, "")
	ns.advertisesMIG(t, startLimit)
	ns.migDevice("late")
	assert.Equal(t, plugin.UID, ns.plugin(t).UID, "no plugin was restarted")
	require.NoError(t, ns.silence())
}

// TestConfigUnknown: an unknown name in the label leaves the last valid configuration in effect, and is reported until it is fixed.
func TestConfigUnknown(t *testing.T) {
	ns := migExclusive(t)
	plugin := ns.plugin(t)
	ns.configured(t, "nothing")
	message := ns.warned("NodeConfigInvalid", "specified config nothing does not exist")
	t.Log(message)
	assert.Contains(t, message, "The configuration that was read before stays")
	assert.Contains(t, message, "there are: e2e, whole")
	const problem = `prism_node_config_problem{reason="NodeConfigInvalid"}`
	eventually(t, startLimit, func() error { return ns.measures(plugin, problem, "1") })
	ns.advertisesMIG(t, startLimit)
	ns.configured(t, "")
	ns.warned("NodeConfigAccepted", "valid again")
	// Another test may have caused such an Event.
	eventually(t, startLimit, func() error { return ns.measures(plugin, problem, "0") })
	ns.advertisesMIG(t, startLimit)
}

// configured sets the node's label, or removes it, until the end of the test.
func (ns *namespace) configured(t *testing.T, name string) {
	t.Helper()
	label := func(value string) []string {
		if value == "" {
			return ns.kubectl("label", "node", nodeName, configLabel+"-")
		}
		return ns.kubectl("label", "--overwrite", "node", nodeName, configLabel+"="+value)
	}
	t.Cleanup(func() { _, _ = ns.run("", label("")...) }) // the test may have removed it
	ns.must(t, label(name)...)
}

// migDevicesOf returns an error unless this number of placements of a GPU is published.
func (c *cluster) migDevicesOf(index, want int) error {
	published, err := c.placementsOf(index)
	if err == nil && len(slices.Compact(published)) != want {
		err = fmt.Errorf("GPU %d is advertised as %v", index, published)
	}
	return err
}
