package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMIGDevice_EveryKindOfRequest_Prepared: requests by profile, by memory, by preference, on different GPUs and by resource name, all at
// once.
func TestMIGDevice_EveryKindOfRequest_Prepared(t *testing.T) {
	needs(t, extendedResources)
	ns := migInParallel(t)
	ns.apply("mig-profile/pod.yaml")
	ns.apply("mig-memory/pod.yaml")
	ns.apply("mig-first-available/pod.yaml")
	ns.apply("mig-spread/pod.yaml")
	ns.apply("mig-extended-resource/pod.yaml")

	assert.Equal(t, "1g.10gb", ns.migDevice("mig-profile").Profile)
	assert.Equal(t, "1g.20gb", ns.migDevice("mig-memory").Profile, "the smallest with 19Gi")
	preferred := ns.migDevice("mig-first-available")
	assert.Equal(t, "2g.20gb", preferred.Profile)
	assert.Equal(t, "mig/two", preferred.request)

	spread := ns.grantedTo(ns.ready("mig-spread"), "mig")
	require.Len(t, spread, 2)
	assert.NotEqual(t, spread[0].ParentUUID, spread[1].ParentUUID)
	for _, container := range []string{"first", "second"} {
		ns.sees("mig-spread", container, forRequest(t, spread, container)...)
	}

	pod := ns.ready("mig-extended-resource")
	require.NotNil(t, pod.Status.ExtendedResourceClaimStatus)
	made := ns.granted(pod.Status.ExtendedResourceClaimStatus.ResourceClaimName)
	require.Len(t, made, 1)
	assert.Equal(t, "1g.10gb", made[0].Profile)
	ns.sees("mig-extended-resource", "main", made...)
	require.NoError(t, ns.silence())

	claim := ns.claimOf(ns.pod("mig-profile"), "mig")
	description := ns.do("describe", "resourceclaim", claim.Name)
	for _, fact := range []string{"MIG-", "GPU-", "1g.10gb", "Placement", "Prepared"} {
		assert.Contains(t, description, fact)
	}
}

// TestMIGFourInOne: four different MIG devices of one GPU, each for another container of a pod.
func TestMIGFourInOne(t *testing.T) {
	ns := migInParallel(t)
	ns.apply("mig-four-in-one/pod.yaml")
	grants := ns.grantedTo(ns.ready("mig-four-in-one"), "mig")
	require.Len(t, grants, 4)
	for container, profile := range map[string]string{"large": "3g.40gb", "medium": "2g.20gb", "small": "1g.10gb", "media": "1g.10gb+me"} {
		its := forRequest(t, grants, container)
		require.Len(t, its, 1)
		assert.Equal(t, profile, its[0].Profile)
		assert.Equal(t, grants[0].ParentUUID, its[0].ParentUUID)
		ns.sees("mig-four-in-one", container, its...)
	}
	require.NoError(t, ns.silence())
}

// TestMIGSevenOnOneGPU: when one of seven ends, the eighth gets its memory slice as another MIG device.
func TestMIGSevenOnOneGPU(t *testing.T) {
	ns := migInParallel(t)
	for i := range 7 {
		ns.createMIG(fmt.Sprintf("mig-%d", i), "1g.10gb", 7)
	}
	seen, starts := map[string]bool{}, map[int]bool{}
	for i := range 7 {
		g := ns.migDevice(fmt.Sprintf("mig-%d", i))
		seen[g.UUID], starts[g.Placement.Start] = true, true
	}
	require.Len(t, seen, 7)
	require.Len(t, starts, 7)

	ns.createMIG("eighth", "1g.10gb", 7)
	ns.waits("eighth")
	ended := ns.grantedTo(ns.pod("mig-3"), "mig")[0]
	ns.delete("pod", "mig-3")
	start := time.Now()
	gets := ns.migDevice("eighth")
	t.Logf("the eighth pod ran %.1f s after one of seven had ended", time.Since(start).Seconds())
	assert.Equal(t, ended.Placement, gets.Placement)
	assert.Equal(t, ended.UUID, gets.UUID, "a UUID names a place, and no creation")
	ns.sees("mig-0", "main", ns.grantedTo(ns.pod("mig-0"), "mig")...)
	require.NoError(t, ns.silence())
}

// TestMIGAndWhole: a request for the whole GPU waits until the last of its MIG devices is released, and a request for a MIG device waits
// for the whole GPU.
func TestMIGAndWhole(t *testing.T) {
	ns := migInParallel(t)
	ns.apply("mig-and-whole/mig.yaml")
	left, right := ns.migDevice("left"), ns.migDevice("right")
	assert.NotEqual(t, left.Placement, right.Placement)

	ns.apply("mig-and-whole/whole.yaml")
	ns.waits("all-of-gpu-7")
	ns.deleteWithClaim("left", "mig")
	ns.stillWaits("all-of-gpu-7", 7)
	ns.sees("right", "main", right)

	ns.delete("pod", "right")
	whole := ns.grantedTo(ns.ready("all-of-gpu-7"), "gpu")
	assert.Equal(t, left.ParentUUID, whole[0].UUID)
	ns.sees("all-of-gpu-7", "main", whole...)
	assert.False(t, ns.mustPartitions(t, 7).MIG, "in MIG mode a whole GPU runs no program")

	ns.createMIG("again", "3g.40gb", 7)
	ns.waits("again")
	ns.delete("pod", "all-of-gpu-7")
	assert.Equal(t, left.ParentUUID, ns.migDevice("again").ParentUUID)
	require.NoError(t, ns.silence())
}

// TestMIGProfileUnknown: the scheduler finds no device for a profile that no GPU has.
func TestMIGProfileUnknown(t *testing.T) {
	ns := inParallel(t, 0)
	ns.createMIG("wrong", "5g.50gb", 7)
	ns.waits("wrong")
}
