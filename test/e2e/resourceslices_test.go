package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWholeResourceSlices_Deleted_PublishedAgain: the plugin publishes the devices again although no other event would make it publish.
func TestWholeResourceSlices_Deleted_PublishedAgain(t *testing.T) {
	ns := exclusive(t)
	ns.advertises(t, ns.gpus.size, startLimit)
	before, err := ns.resourceSlices()
	require.NoError(t, err)

	ns.must(t, ns.kubectl("delete", "resourceslices", "--field-selector", "spec.driver="+driverName)...)
	start := time.Now()
	ns.advertises(t, ns.gpus.size, startLimit)
	t.Logf("wiped ResourceSlices were back after %.2f s", time.Since(start).Seconds())

	after, err := ns.resourceSlices()
	require.NoError(t, err)
	require.Len(t, after, len(before))
	require.NotEqual(t, before[0].UID, after[0].UID)
	ns.apply("whole-gpu/pod.yaml")
	ns.sees("whole-gpu", "main", ns.grantedTo(ns.ready("whole-gpu"), "gpu")...)
}
