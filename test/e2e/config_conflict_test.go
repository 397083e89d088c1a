package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDevicePluginConflict: while a device plugin allocates the GPUs too, no new claim gets one. The scheduler allocates none, whether the
// API server supports device taints or not, and the plugin prepares no claim that was allocated before. Running pods keep their GPUs.
func TestDevicePluginConflict(t *testing.T) {
	ns := exclusive(t)
	ns.apply("whole-gpu/pod.yaml")
	has := ns.grantedTo(ns.ready("whole-gpu"), "gpu")
	free := ns.freeGPU(has...)

	dir := filepath.Join(filepath.Dir(ns.variable("PRISM_NODE_0_KUBELET_PLUGINS")), "device-plugins")
	require.NoError(t, os.MkdirAll(dir, 0o750))
	socket, err := net.Listen("unix", filepath.Join(dir, "nvidia-gpu.sock"))
	require.NoError(t, err)
	defer func() { _ = socket.Close() }()
	notices(t, "another component allocates the GPUs", func() error { return ns.conflict("device-plugin") })
	t.Log(ns.warned("AllocationConflict", "/var/lib/kubelet/device-plugins/nvidia-gpu.sock exists"))
	ns.sees("whole-gpu", "main", has...)
	ns.apply("two-gpus/pod.yaml")
	if ns.nodes(t) == 1 {
		ns.waits("two-gpus")
	}
	ns.create(workload{name: "allocated", ref: "gpu", named: true, request: request{class: gpuClass}})
	ns.allocate("allocated", free)
	sentence := ns.refused("allocated", startLimit)
	t.Log(sentence)
	assert.Contains(t, sentence, "the GPUs of the node are withheld: a device plugin allocates them too")
	assert.Contains(t, sentence, "(will be retried)")
	ns.notStarted(ns.pod("allocated"))

	require.NoError(t, socket.Close()) // which removes its file
	notices(t, "it does no more", func() error { return ns.conflict("") })
	ns.sees("allocated", "main", ns.grantedTo(ns.ready("allocated"), "gpu")...)
	ns.ready("two-gpus")
	ns.sees("whole-gpu", "main", has...)
	ns.warned("AllocationConflictResolved", "No other component allocates the GPUs any more")
	require.NoError(t, ns.silence())
}

// freeGPU returns the name of a whole GPU in the pool of the first node that is not taken.
func (ns *namespace) freeGPU(taken ...grant) string {
	ns.t.Helper()
	published, err := ns.resourceSlices()
	require.NoError(ns.t, err)
	for i := range published {
		for _, device := range published[i].Spec.Devices {
			kind, uuid := device.Attributes["type"].StringValue, device.Attributes["uuid"].StringValue
			if published[i].Spec.Pool.Name == nodeName && kind != nil && *kind == "gpu" && uuid != nil && !slices.Contains(uuidsOf(taken...), *uuid) {
				return device.Name
			}
		}
	}
	require.Fail(ns.t, "no whole GPU is free")
	return ""
}

// allocate does the scheduler's work for a claim with one request, and writes all its fields: without the node the API server refuses the
// plugin's status, and without the time the reservation for the pod.
func (ns *namespace) allocate(claim, device string) {
	ns.t.Helper()
	now := metav1.Now()
	patch, err := json.Marshal(map[string]any{"status": resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: driverName, Pool: nodeName, Device: device},
		}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName}},
		}}}},
		AllocationTimestamp: &now,
	}}})
	require.NoError(ns.t, err)
	ns.do("patch", "resourceclaim", claim, "--subresource=status", "--type=merge", "--patch="+string(patch))
}

// conflict returns an error unless all devices of the first node have the taint of this conflict; for an empty conflict, unless none is
// tainted. If the API server drops taints, no device may be published during a conflict.
func (c *cluster) conflict(want string) error {
	published, err := c.resourceSlices()
	if err != nil {
		return err
	}
	minor, err := minorVersion()
	if err != nil {
		return err
	}
	withdrawn := want != "" && minor < features[deviceTaints].since
	devices := 0
	for i := range published {
		if name := published[i].Spec.NodeName; name == nil || *name != nodeName {
			continue
		}
		for _, device := range published[i].Spec.Devices {
			devices++
			has := ""
			for _, taint := range device.Taints {
				if taint.Key == driverName+"/conflict" {
					has = taint.Value
				}
			}
			if has != want && !withdrawn {
				return fmt.Errorf("conflict of device %s: got %q, want %q", device.Name, has, want)
			}
		}
	}
	if withdrawn != (devices == 0) {
		return fmt.Errorf("node %s has %d devices with the conflict %q", nodeName, devices, want)
	}
	return nil
}
