package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDevicePluginConflict: while a device plugin hands out the GPUs too, no new claim gets one; running pods keep theirs.
func TestDevicePluginConflict(t *testing.T) {
	needs(t, deviceTaints)
	ns := alone(t)
	ns.apply("whole-gpu/pod.yaml")
	has := ns.grantedTo(ns.ready("whole-gpu"), "gpu")

	dir := filepath.Join(filepath.Dir(ns.variable("PRISM_NODE_0_KUBELET_PLUGINS")), "device-plugins")
	require.NoError(t, os.MkdirAll(dir, 0o750))
	socket, err := net.Listen("unix", filepath.Join(dir, "nvidia-gpu.sock"))
	require.NoError(t, err)
	defer func() { _ = socket.Close() }()
	eventually(t, statusLimit, func() error { return ns.conflict("device-plugin") })
	t.Log(ns.warned("Conflict", "/var/lib/kubelet/device-plugins/nvidia-gpu.sock shows"))
	ns.sees("whole-gpu", "main", has...)
	ns.apply("two-gpus/pod.yaml")
	if ns.nodes(t) == 1 {
		ns.waits("two-gpus")
	}

	require.NoError(t, socket.Close()) // which removes it
	eventually(t, statusLimit, func() error { return ns.conflict("") })
	ns.ready("two-gpus")
	ns.warned("ConflictEnded", "Nothing else hands out the GPUs any more")
	require.NoError(t, ns.silence())
}

// conflict complains unless all devices of the first node have the taint of this conflict, or none has one.
func (c *cluster) conflict(want string) error {
	published, err := c.slices()
	if err != nil {
		return err
	}
	for i := range published {
		if name := published[i].Spec.NodeName; name == nil || *name != nodeName {
			continue
		}
		for _, device := range published[i].Spec.Devices {
			has := ""
			for _, taint := range device.Taints {
				if taint.Key == driverName+"/conflict" {
					has = taint.Value
				}
			}
			if has != want {
				return fmt.Errorf("device %s has the conflict %q, not %q", device.Name, has, want)
			}
		}
	}
	return nil
}
