package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// limitingDriver is a version of the driver that limits the GPU memory of cgroups.
const limitingDriver = "615.71.09"

// enforced requests that the memory limit is enforced.
const enforced = `{"apiVersion": "gpu.prism.dev/v1alpha1", "kind": "GPUConfig", "enforceMemory": true}`

// limitedShare returns a pod with a time-sliced share of 4 GiB, with enforced memory.
func limitedShare(name, class, driver string) workload {
	return workload{name: name, ref: "share", request: request{
		class: class, driver: driver, config: enforced, capacity: map[resourceapi.QualifiedName]string{"memory": "4Gi"},
	}}
}

// TestEnforcedMemory: a driver that limits the GPU memory of cgroups, on a node with cgroup v1 and for a plugin with cgroup v2.
func TestEnforcedMemory(t *testing.T) {
	ns := mpsExclusive(t)
	h, err := ns.hardware()
	require.NoError(t, err)
	t.Cleanup(func() {
		ns.replaceDriver(h.Driver.Version)
		ns.advertisesMIG(t, startLimit)
	})
	ns.replaceDriver(limitingDriver)
	t.Run("CgroupV1_Refused", refusedWithCgroupV1)
	t.Run("CgroupV2_ContainerLimited", limitedWithCgroupV2)
}

// refusedWithCgroupV1 checks that a claim that requires a limit is refused, with the reason, if nothing can enforce the limit. For a whole
// GPU it is prepared.
func refusedWithCgroupV1(t *testing.T) {
	ns := exclusive(t)
	if ns.hasCgroupV2() {
		t.Skip("the node has cgroup v2")
	}
	ns.create(limitedShare("time-sliced", "timeslice.gpu.prism.dev", driverName))
	ns.isRefused("time-sliced", "share", "enforceMemory", "cgroup v2")
	ns.create(workload{name: "whole", ref: "gpu", request: request{class: gpuClass, driver: driverName, config: enforced}})
	ns.ready("whole")
}

// hasCgroupV2 reports whether the node uses only cgroup v2.
func (c *cluster) hasCgroupV2() bool {
	_, err := c.run("", c.onNode("test", "-e", "/sys/fs/cgroup/cgroup.controllers")...)
	return err == nil
}

// limitedWithCgroupV2 runs a plugin, prism-hook and runc with cgroup v2 only, and checks that programs in a container cannot allocate more
// GPU memory than the claim requested. A kubelet cannot run in this way if the machine's controllers are in hierarchies of version 1:
// prism-hook fails its container, which the node's runtime creates without cgroup v2.
func limitedWithCgroupV2(t *testing.T) {
	c := open(t)
	p := c.pluginWithCgroupV2(t)
	ns := exclusive(t)
	limited := limitedShare("limited", memoryDriver, memoryDriver)
	limited.restart = corev1.RestartPolicyAlways
	ns.create(limited)
	if ns.hasCgroupV2() {
		ns.ready("limited")
		ns.limitedTo("limited", "main", 4096)
	} else {
		message := ns.event("limited", "Failed", startLimit)
		t.Log(message)
		assert.Contains(t, message, "limits of GPU memory require a host with cgroup v2 only")
	}

	claim := string(ns.claimOf(ns.pod("limited"), "share").UID)
	const most = 4096 - contextMiB
	out := p.runs(t, claim, "fits", most)
	assert.Contains(t, out, "free 3584 MiB, total 4096 MiB")
	assert.Contains(t, out, "holding 3584 MiB")
	assert.Contains(t, p.runs(t, claim, "too-much", most+1), "cuMemAlloc_v2: 2", "out of memory")
	ns.delete("pod", "limited")
	require.NoError(t, ns.silence())
}
