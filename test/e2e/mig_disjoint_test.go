package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMIGDisjoint: where the API server keeps no counters, a GPU that may be whole or cut is whole, one that may only be cut has a fixed
// set of slices that can all be at once, and the administrator is told.
func TestMIGDisjoint(t *testing.T) {
	lacks(t, partitionableDevices)
	ns := newNamespace(t, open(t))
	require.True(t, ns.gpus.whole(), "a test that goes on beside others began already: this one has to come before it, in the order of file names")
	assert.Contains(t, ns.warned("CountersDropped", "whole"), "DRAPartitionableDevices")
	ns.offers(t, ns.gpus.size, startLimit)
	require.NoError(t, ns.offersNo("mig"))
	ns.apply("mig-and-whole/whole.yaml")
	ns.grantedTo(ns.ready("all-of-gpu-7"), "gpu")
	ns.delete("pod", "all-of-gpu-7")

	const entry = "config.map.e2e.gpus[0]."
	ns.helm(t, "upgrade", "prism", filepath.Join(ns.root, "deployments/helm/prism"), "--reuse-values", "--set",
		strings.Join([]string{entry + "select.indices={7}", entry + "modes={mig}", entry + "mig.profiles={1g.10gb,3g.40gb}"}, ","))
	t.Cleanup(func() {
		ns.helm(t, "rollback", "prism")
		ns.plugin(t)
		ns.offers(t, ns.gpus.size, startLimit)
	})
	ns.plugin(t)
	const large, small = 1, 4 // a 3g.40gb at memory slice 4, and a 1g.10gb at each below
	eventually(t, startLimit, func() error {
		n, err := ns.offered("mig")
		if err == nil && n != large+small {
			err = fmt.Errorf("%d MIG devices are published, not %d", n, large+small)
		}
		return err
	})
	pods := []string{"large"}
	ns.want("large", "3g.40gb", 7)
	for i := range small {
		pods = append(pods, fmt.Sprintf("small-%d", i))
		ns.want(pods[1+i], "1g.10gb", 7)
	}
	for _, pod := range pods {
		ns.slice(pod)
	}
	ns.want("one-more", "1g.10gb", 7)
	ns.waits("one-more")
	for _, pod := range append(pods, "one-more") {
		ns.delete("pod", pod)
	}
	require.NoError(t, ns.instances(7, 0))
}

// lacks skips the test where Kubernetes has the feature.
func lacks(t *testing.T, what feature) {
	t.Helper()
	open(t)
	minor, err := minorVersion()
	require.NoError(t, err)
	if minor >= features[what].since {
		t.Skipf("Kubernetes 1.%d has %s", minor, what)
	}
}
