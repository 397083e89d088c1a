package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nvidiaDriver is the name of NVIDIA's DRA driver.
const nvidiaDriver = "gpu.nvidia.com"

// TestNVIDIADriver: if Prism uses the name of NVIDIA's driver, manifests for that driver run: their classes, their configuration of whole
// GPUs and of MIG devices, with time-slicing and with MPS.
func TestNVIDIADriver(t *testing.T) {
	needs(t, partitionableDevices)
	c := open(t)
	c.advertisesMIG(t, startLimit)
	c.leavesNoInstance(t)
	c.under(t, nvidiaDriver)
	ns := exclusive(t)

	ns.apply("nvidia-driver/time-slicing.yaml")
	whole := ns.grantedTo(ns.ready("ts-pod"), "shared-gpu")
	require.Len(t, whole, 1)
	ns.sees("ts-pod", "ts-ctr0", whole...)
	ns.sees("ts-pod", "ts-ctr1", whole...)
	found, err := ns.intervals()
	require.NoError(t, err)
	assert.Equal(t, "Long", found[fmt.Sprint(whole[0].Index)])

	ns.apply("nvidia-driver/mig.yaml")
	migs := ns.grantedTo(ns.ready("mig-pod"), "mig-devices")
	require.Len(t, migs, 2)
	assert.Equal(t, migs[0].ParentUUID, migs[1].ParentUUID)
	small, large := forRequest(t, migs, "mig-small"), forRequest(t, migs, "mig-large")
	assert.Equal(t, []string{"1g.10gb", "3g.40gb"}, []string{small[0].Profile, large[0].Profile})
	ns.sees("mig-pod", "small", small...)
	ns.sees("mig-pod", "large", large...)
	require.NoError(t, ns.silence())

	ns.mpsOfNVIDIA()
	require.NoError(t, ns.silence())
}

// under runs the chart's release under another driver name until the end of the test. Tests call it before they create a namespace, so that
// their pods end first.
func (c *cluster) under(t *testing.T, driver string) {
	t.Helper()
	t.Cleanup(func() {
		// A removed driver leaves its ResourceSlices; and while it exits, its socket counts as a conflict.
		c.must(t, c.kubectl("delete", "resourceslices", "--field-selector", "spec.driver="+driver)...)
		eventually(t, startLimit, func() error { return c.conflict("") })
		c.renewMPSService(t)
		c.advertises(t, c.gpus.size, startLimit)
		c.advertisesMIG(t, startLimit)
		c.advertisesMPS(t)
	})
	// The classes of resource names would match the devices of both drivers.
	c.withValue(t, "driverName="+driver+",controller.enabled=false")
	c.renewMPSService(t)
	directory := filepath.Join(c.variable("PRISM_NODE_0_KUBELET_PLUGINS"), driver)
	eventually(t, startLimit, func() error {
		sockets, err := filepath.Glob(filepath.Join(directory, "*.sock"))
		if err == nil && len(sockets) == 0 {
			err = fmt.Errorf("no socket in %s", directory)
		}
		return err
	})
}
