// Package gpu_test checks the assumptions about NVML, MPS and the driver on a real GPU. The checks change no setting of it.
package gpu_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/hostfs/pcie"
	"github.com/prism-gpu/prism/pkg/nvml"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// open opens this machine's driver. Without an NVIDIA kernel module it skips the test; with a module but no usable driver it fails.
func open(t *testing.T) (*nvml.Session, hostfs.DriverRoot, *pcie.Host) {
	t.Helper()
	host := pcie.New("/")
	if _, err := os.Stat("/proc/driver/nvidia/version"); errors.Is(err, os.ErrNotExist) {
		t.Skip("no NVIDIA kernel driver on this machine")
	}
	root, err := host.FindDriver(os.Getenv("PRISM_DRIVER_ROOT"))
	require.NoError(t, err)
	session, err := nvml.Open(t.Context(), root.Library, nvml.Options{Root: root.Path, HostRoot: root.HostPath})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, session.Close()) })
	return session, root, host
}

func TestInventory_RealGPUs_PlausibleAndStable(t *testing.T) {
	session, root, host := open(t)
	node := &gpu.Node{}
	var err error
	node.Driver, err = session.Driver(t.Context())
	require.NoError(t, err)
	node.GPUs, node.Faults, err = session.GPUs(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, node.GPUs, "faults: %v", node.Faults)
	for i := range node.GPUs {
		node.GPUs[i].PCI = host.PCI(node.GPUs[i].PCI.BusID)
	}
	gpu.AssignIDs(node.GPUs)
	show(t, "driver root", root)
	load := host.DriverLoad()
	t.Logf("load of the driver: %q", load)
	show(t, "node", node)

	for i := range node.GPUs {
		g := &node.GPUs[i]
		assert.Regexp(t, `^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, string(g.UUID))
		assert.Regexp(t, `^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`, g.PCI.BusID)
		assert.NotZero(t, g.Capacity.MemoryBytes)
		assert.NotZero(t, g.Capacity.Multiprocessors)
		assert.NotEmpty(t, g.Product.Architecture)
		device, err := host.CharDevice(root.DevHostPath + fmt.Sprintf("/dev/nvidia%d", g.Minor))
		require.NoError(t, err)
		assert.EqualValues(t, 195, device.Major)
		assert.EqualValues(t, g.Minor, device.Minor)
	}
	resources := publish.Resources(publish.Options{NodeName: "node"}, node)
	show(t, "ResourceSlices", resources.Pools["node"].Slices)

	assert.Equal(t, load, host.DriverLoad(), "the driver was not loaded again")
	again, _, err := session.GPUs(t.Context())
	require.NoError(t, err)
	require.Len(t, again, len(node.GPUs))
	for i := range again {
		assert.Equal(t, node.GPUs[i].UUID, again[i].UUID, "the same GPUs in the same order")
	}
}

func TestCommonEdits_RealDriver_ReadOnlyMounts(t *testing.T) {
	session, _, _ := open(t)
	edits, err := session.CommonEdits(t.Context())
	require.NoError(t, err)
	assert.Contains(t, edits.Env, "NVIDIA_VISIBLE_DEVICES=void")
	assert.Empty(t, edits.DeviceNodes, "device nodes are not taken from nvcdi")
	for _, m := range edits.Mounts {
		assert.Contains(t, m.Options, "ro", m.ContainerPath)
	}
	version, err := specs.MinimumRequiredVersion(&specs.Spec{Kind: "a/b", ContainerEdits: *edits})
	require.NoError(t, err)
	assert.Contains(t, []string{"0.3.0", "0.4.0", "0.5.0", "0.6.0"}, version)
	show(t, "common edits", edits)
}

// show logs a value as JSON.
func show(t *testing.T, what string, value any) {
	t.Helper()
	data, err := json.MarshalIndent(value, "", "  ")
	require.NoError(t, err)
	t.Logf("%s: %s", what, data)
}
