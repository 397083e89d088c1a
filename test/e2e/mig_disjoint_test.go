package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMIGDisjoint: if the API server drops counters, a GPU in modes whole and mig is advertised whole, and a GPU in mode mig alone as a
// fixed set of MIG devices that can all exist at once. An Event reports it.
func TestMIGDisjoint(t *testing.T) {
	lacks(t, partitionableDevices)
	open(t).leavesNoInstance(t)
	ns := exclusive(t)
	assert.Contains(t, ns.warned("PartitionableDevicesDisabled", "whole"), "DRAPartitionableDevices")
	ns.advertises(t, ns.gpus.size, startLimit)
	require.NoError(t, ns.advertisesNo("mig"))
	ns.apply("mig-and-whole/whole.yaml")
	ns.grantedTo(ns.ready("all-of-gpu-7"), "gpu")
	ns.delete("pod", "all-of-gpu-7")

	back := ns.configure(t, "select.indices={7}", "modes={mig}", "mig.profiles={1g.10gb,3g.40gb}")
	const large, small = 1, 4 // a 3g.40gb at memory slice 4, and a 1g.10gb at each below
	eventually(t, startLimit, func() error {
		n, err := ns.advertised("mig")
		if err == nil && n != large+small {
			err = fmt.Errorf("%d MIG devices are published, not %d", n, large+small)
		}
		return err
	})
	pods := []string{"large"}
	// The classes of profiles need no extended resource names.
	ns.create(migPod("large", "mig-3g-40gb.gpu.prism.dev"))
	for i := range small {
		pods = append(pods, fmt.Sprintf("small-%d", i))
		ns.createMIG(pods[1+i], "1g.10gb", 7)
	}
	for _, pod := range pods {
		ns.migDevice(pod)
	}
	ns.createMIG("one-more", "1g.10gb", 7)
	ns.waits("one-more")
	require.NoError(t, ns.silence())
	ns.delete("pods", "--all")
	back()
	ns.advertises(t, ns.gpus.size, startLimit)
}

// lacks skips the test if Kubernetes supports the feature.
func lacks(t *testing.T, what feature) {
	t.Helper()
	open(t)
	minor, err := minorVersion()
	require.NoError(t, err)
	if minor >= features[what].since {
		t.Skipf("Kubernetes 1.%d has %s", minor, what)
	}
}
