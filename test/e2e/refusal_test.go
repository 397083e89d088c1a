package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// isRefused checks that the pod's claim was refused for good, with one message with these parts in the pod's Events and in the claim's
// status, and that no container started.
func (ns *namespace) isRefused(name, ref string, parts ...string) {
	ns.t.Helper()
	ns.isRefusedWith(name, ref, append(parts, "(not retryable)")...)
}

// isRefusedWith is isRefused for any refusal.
func (ns *namespace) isRefusedWith(name, ref string, parts ...string) {
	ns.t.Helper()
	message := ns.event(name, prepareFailed, startLimit)
	pod := ns.pod(name)
	sentence := ns.refused(ns.claimOf(pod, ref).Name, startLimit)
	ns.t.Log(sentence)
	for _, part := range parts {
		assert.Contains(ns.t, sentence, part)
	}
	assert.Contains(ns.t, message, sentence, "the Event contains the message of the claim's status")
	ns.notStarted(pod)
}

// notStarted checks that no container of the pod ever ran.
func (ns *namespace) notStarted(pod *corev1.Pod) {
	ns.t.Helper()
	require.Equal(ns.t, corev1.PodPending, pod.Status.Phase)
	for i := range pod.Status.ContainerStatuses {
		assert.NotNil(ns.t, pod.Status.ContainerStatuses[i].State.Waiting, "container %s", pod.Status.ContainerStatuses[i].Name)
	}
}

// callTime is less than the time for which a call of the kubelet is retried, which TestPrepare_TransientCause_Retried counts.
const callTime = 30 * time.Second

// TestWholeDeviceNodeMissing: a GPU whose device node is missing gets no new claims. If it was allocated before, the claim is refused at once,
// and its status reports the missing node. When the node is there and the taint has ended, the kubelet's next call succeeds.
func TestWholeDeviceNodeMissing(t *testing.T) {
	ns := exclusive(t)
	boards, err := ns.boards()
	require.NoError(t, err)
	missing := "/dev/nvidia"
	for _, b := range boards {
		if b.Ordinal == 5 {
			missing += string(rune('0' + b.Minor))
		}
	}
	device := ns.deviceAt(5)
	ns.must(t, ns.simgpu("inject", "device-node-missing", "--gpu", "5")...)
	restore := ns.simgpu("inject", "device-node-restore")
	t.Cleanup(func() { ns.must(t, restore...) })
	require.NotContains(t, ns.nodeDevices(t), missing)
	notices(t, "a device node is missing", func() error { return ns.nodeMissing(device, true) })
	t.Log(ns.warned("DeviceNodesMissing", missing))
	ns.apply("select/by-index.yaml")
	if ns.nodes(t) == 1 {
		ns.waits("gpu-5")
	}

	ns.create(workload{name: "allocated", ref: "gpu", named: true, request: request{
		class: gpuClass, selectors: []string{fmt.Sprintf("device.attributes[%q].index == 5", driverName)}, // the pod stays Pending
	}})
	ns.allocate("allocated", device)
	eventually(t, startLimit, func() error { return ns.assigned("allocated") })
	pod := ns.pod("allocated")
	sentence := ns.refused("allocated", startLimit)
	t.Log(sentence)
	assert.Contains(t, sentence, missing)
	assert.Contains(t, sentence, "(will be retried)")
	ns.notStarted(pod)

	ns.must(t, restore...)
	start := time.Now()
	notices(t, "the device node is there", func() error { return ns.nodeMissing(device, false) })
	grants := ns.grantedTo(ns.ready("allocated"), "gpu")
	t.Logf("the pod was ready %.1f s after the device node came back", time.Since(start).Seconds())
	ns.sees("allocated", "main", grants...)
	ns.warned("DeviceNodesRestored", "gpu-lost=device-node")
	ns.delete("pod/allocated", "resourceclaim/allocated")
	ns.sees("gpu-5", "main", ns.grantedTo(ns.ready("gpu-5"), "gpu")...)
}

// deviceAt returns the name of the first node's whole GPU with that index.
func (ns *namespace) deviceAt(index int64) string {
	ns.t.Helper()
	published, err := ns.resourceSlices()
	require.NoError(ns.t, err)
	for i := range published {
		for _, device := range published[i].Spec.Devices {
			at := device.Attributes["index"].IntValue
			if published[i].Spec.Pool.Name == nodeName && at != nil && *at == index {
				return device.Name
			}
		}
	}
	require.Fail(ns.t, "no such GPU is published", "index %d", index)
	return ""
}

// nodeMissing returns an error unless the device of the first node has the taint of a missing device node or, without want, is published
// without it. If the API server drops taints, the device is not published instead.
func (c *cluster) nodeMissing(device string, want bool) error {
	published, err := c.resourceSlices()
	if err != nil {
		return err
	}
	minor, err := minorVersion()
	if err != nil {
		return err
	}
	there, tainted := false, false
	for i := range published {
		for _, d := range published[i].Spec.Devices {
			if published[i].Spec.Pool.Name != nodeName || d.Name != device {
				continue
			}
			there = true
			tainted = slices.ContainsFunc(d.Taints, func(taint resourceapi.DeviceTaint) bool {
				return taint.Key == driverName+"/gpu-lost" && taint.Value == "device-node"
			})
		}
	}
	if stored := minor >= features[deviceTaints].since; there == (want && !stored) || tainted != (want && stored) {
		return fmt.Errorf("device %s is published: %t, tainted: %t", device, there, tainted)
	}
	return nil
}

// silentWithin is silence for a pod whose claim could not be prepared for at most this time: a call of the kubelet need not last longer.
func (ns *namespace) silentWithin(took time.Duration) {
	ns.t.Helper()
	ns.t.Logf("the claim could not be prepared for up to %.1f s", took.Seconds())
	if took < callTime {
		require.NoError(ns.t, ns.silence())
	}
}
