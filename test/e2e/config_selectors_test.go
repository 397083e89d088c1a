package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConfigSelectors_MatchNothing_Reported: if a select matches no GPU of the node, the plugin reports the names and lists the GPUs of the
// node: as a problem with mustMatch, else only in a Normal Event. A select finds a product by the spelling of the node label
// nvidia.com/gpu.product.
func TestConfigSelectors_MatchNothing_Reported(t *testing.T) {
	ns := migExclusive(t)
	plugin := ns.plugin(t)
	const problem, lacking = `prism_node_config_problem{reason="NodeConfigInvalid"}`, "GPU-00000000-0000-4000-8000-0000000e2e00"

	back := ns.configure(t, "select.products={NVIDIA-B200*}", "select.uuids={"+lacking+"}", "select.indices={77}", "select.mustMatch=true", "modes={whole,mig}")
	message := ns.warned("NodeConfigInvalid", "NVIDIA-B200*")
	t.Log(message)
	for _, part := range []string{
		"select.uuids: no matching device with UUID: " + lacking + "; this node has: GPU-", "select.indices: no matching device at index: 77; this node has: 0, 1,",
		"select.products: no matching device with product name: NVIDIA-B200*; this node has: NVIDIA H100 80GB HBM3", "All else is applied",
	} {
		assert.Contains(t, message, part)
	}
	eventually(t, startLimit, func() error { return ns.measures(plugin, problem, "1") })
	back()

	back = ns.configure(t, "select.products={NVIDIA-B100*}", "modes={whole,mig}")
	message = ns.warned("NodeConfigUnmatched", "no matching device with product name: NVIDIA-B100*; this node has: NVIDIA H100 80GB HBM3")
	t.Log(message)
	eventually(t, startLimit, func() error { return ns.measures(plugin, problem, "0") })
	back()

	back = ns.configure(t, "select.products={nvidia-h100-*-SHARED}", "select.mustMatch=true", "modes={whole,mig}", "mig.profiles={3g.40gb}")
	eventually(t, startLimit, func() error { return ns.migDevicesOf(5, 2) })
	require.NoError(t, ns.measures(plugin, problem, "0"))
	back()
	ns.advertisesMIG(t, startLimit)
	ns.advertises(t, ns.gpus.size, startLimit)
	assert.Equal(t, plugin.UID, ns.plugin(t).UID, "no plugin was restarted")
	require.NoError(t, ns.silence())
}
