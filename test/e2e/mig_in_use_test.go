package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMIGDevice_InUseAfterItsPod_OverlapTainted: a process still uses a MIG device when its pod is gone. Until it exits, overlapping
// devices, and no others, get no new claims.
func TestMIGDevice_InUseAfterItsPod_OverlapTainted(t *testing.T) {
	needs(t, deviceTaints)
	ns := migInParallel(t)
	ns.createMIG("held", "2g.20gb", 7)
	held := ns.migDevice("held")
	ns.holds(held.UUID)
	require.Empty(t, ns.mustTainted(7))

	ns.do("delete", "--wait=false", "pod", "held")
	// At memory slices 4 and 5: the overlapping devices.
	require.Equal(t, placement{Start: 4, Size: 2}, held.Placement)
	want := []string{"1g.10gb+me@4", "1g.10gb+me@5", "1g.10gb@4", "1g.10gb@5", "1g.20gb@4", "2g.20gb@4", "3g.40gb@4", "7g.80gb@0", "gpu"}
	eventually(t, startLimit, func() error {
		if diff := cmp.Diff(want, ns.mustTainted(7)); diff != "" {
			return fmt.Errorf("tainted devices of GPU 7 (-want +got):\n%s", diff)
		}
		return nil
	})
	ns.createMIG("another", "2g.20gb", 7)
	assert.Equal(t, placement{Start: 2, Size: 2}, ns.migDevice("another").Placement)

	ns.must(t, ns.simgpu("inject", "release", held.UUID)...)
	start := time.Now()
	ns.do("wait", "--for=delete", "--timeout="+startLimit.String(), "pod/held")
	t.Logf("the pod was gone %.1f s after the process that used its MIG device", time.Since(start).Seconds())
	require.NoError(t, ns.instances(7, 1))
	eventually(t, startLimit, func() error {
		if tainted := ns.mustTainted(7); len(tainted) > 0 {
			return fmt.Errorf("GPU 7 still has tainted devices: %v", tainted)
		}
		return nil
	})
	require.NoError(t, ns.silence())
}

// TestMIGModeInUse: MIG mode cannot change while a process uses the GPU. Meanwhile the call goes on and the claim's status reports it. The
// call succeeds when the GPU is free.
func TestMIGModeInUse(t *testing.T) {
	ns := migInParallel(t)
	ns.apply("mig-and-whole/whole.yaml") // disables MIG mode
	gpu := ns.grantedTo(ns.ready("all-of-gpu-7"), "gpu")[0].UUID
	ns.delete("pod", "all-of-gpu-7")
	ns.holds(gpu)

	created := time.Now()
	ns.createMIG("mig", "1g.10gb", 7)
	eventually(t, startLimit, func() error { return ns.assigned("mig") })
	pod := ns.pod("mig")
	sentence := ns.refused(ns.claimOf(pod, "mig").Name, startLimit)
	t.Log(sentence)
	for _, part := range []string{gpu, "turning on the MIG mode", "something on the node uses GPU", "nvidia-smi", "(will be retried)"} {
		assert.Contains(t, sentence, part)
	}
	ns.notStarted(pod)
	ns.must(t, ns.simgpu("inject", "release", gpu)...)
	took := time.Since(created)
	ns.migDevice("mig")
	ns.silentWithin(took)
}

// holds starts a process that uses a GPU or a MIG device until the end of the test.
func (ns *namespace) holds(uuid string) {
	ns.t.Helper()
	ns.must(ns.t, ns.simgpu("inject", "hold", uuid)...)
	ns.t.Cleanup(func() { _, _ = ns.run("", ns.simgpu("inject", "release", uuid)...) }) // the test may have released it
}

// mustTainted returns the short names of a GPU's devices that are tainted for new claims.
func (ns *namespace) mustTainted(index int) []string {
	ns.t.Helper()
	published, err := ns.resourceSlices()
	require.NoError(ns.t, err)
	uuid := ns.mustPartitions(ns.t, index).UUID
	var tainted []string
	for i := range published {
		for _, device := range published[i].Spec.Devices {
			if isOf(&device, uuid) && len(device.Taints) > 0 {
				tainted = append(tainted, shortName(&device))
			}
		}
	}
	slices.Sort(tainted)
	return tainted
}
