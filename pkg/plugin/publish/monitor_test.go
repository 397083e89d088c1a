package publish_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// withMonitor are the options of a node with a monitor device.
func withMonitor(layout gpu.Layout) publish.Options {
	return publish.Options{DriverName: driverName, NodeName: nodeName, Layout: layout, Additional: gpu.Additional{Monitor: true}}
}

// all asks with admin access for every device of a class.
func all(class string) resourceapi.ExactDeviceRequest {
	yes := true
	return resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeAll, AdminAccess: &yes}
}

// TestMonitor_AnyLayout_SlimDeviceOfItsOwnPool: one slim device in a separate pool, for every layout of the GPUs.
func TestMonitor_AnyLayout_SlimDeviceOfItsOwnPool(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 2)
	for _, layout := range []gpu.Layout{nil, everything(n), everything(n).Disjoint()} {
		opts := withMonitor(layout)
		opts.Taints = slices.Concat(publish.CleanupTaints([]gpu.PendingCleanup{{GPU: n.GPUs[0].UUID}}), publish.ConflictTaints(publish.ConflictDevicePlugin))
		pool, found := publish.Resources(opts, n).Pools[nodeName+"/monitor"]
		require.True(t, found)
		require.Len(t, pool.Slices, 1)
		assert.Empty(t, pool.Slices[0].SharedCounters)
		require.Len(t, pool.Slices[0].Devices, 1)
		d := pool.Slices[0].Devices[0]
		checkSlim(t, d)
		assert.Equal(t, "monitor", *d.Attributes["type"].StringValue)
		assert.Equal(t, 2*int64(n.GPUs[0].Capacity.MemoryBytes), quantity(d, "memory"))
		assert.Equal(t, int64(2), quantity(d, "gpus"))
	}
}

// checkSlim: it takes nothing, nothing keeps it from claims, and it has few attributes.
func checkSlim(t *testing.T, d resourceapi.Device) {
	t.Helper()
	assert.Equal(t, "monitor", d.Name)
	assert.LessOrEqual(t, len(d.Attributes), 8)
	assert.Empty(t, d.ConsumesCounters)
	assert.Empty(t, d.Taints)
	assert.Nil(t, d.AllowMultipleAllocations)
}

// TestMonitor_Option_DecidesAboutThePool: there is a pool without GPUs and without a driver, and none if it is not wanted.
func TestMonitor_Option_DecidesAboutThePool(t *testing.T) {
	t.Parallel()
	for _, n := range []*gpu.Node{nil, {}} {
		pool, found := publish.Resources(withMonitor(nil), n).Pools[nodeName+"/monitor"]
		require.True(t, found)
		require.Len(t, pool.Slices, 1)
		assert.Empty(t, pool.Slices[0].Devices)
	}
	opts := withMonitor(nil)
	opts.Additional = gpu.Additional{}
	assert.NotContains(t, publish.Resources(opts, migNode(t, "h100-80", 2)).Pools, nodeName+"/monitor")
}

// TestAdminAccess_WholeGPUs_ByTheirOwnClass: claims with admin access get only GPUs that are advertised whole, also GPUs in use, any number
// of times.
func TestAdminAccess_WholeGPUs_ByTheirOwnClass(t *testing.T) {
	t.Parallel()
	n := node(t, "a30", 4)
	s := newScheduler(t, poolsOf(n, nil))
	want := s.allocate(request("gpu.prism.dev", 4))
	require.Len(t, want, 4)
	assert.Equal(t, want, s.allocate(all("gpu.prism.dev")))
	assert.Equal(t, want, s.allocate(all("gpu.prism.dev")), "as often as wanted")
	assert.Nil(t, s.allocate(request("gpu.prism.dev", 1)), "no other claim gets them")
}

// TestAdminAccess_PartitionedGPUsInUse_ByMonitorOnly: a scheduler allocates no device with admin access whose counters are taken
// (kubernetes/kubernetes#140729); the monitor uses none.
func TestAdminAccess_PartitionedGPUsInUse_ByMonitorOnly(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 2)
	s := newScheduler(t, published(n, withMonitor(everything(n))))
	require.Len(t, s.allocate(request("mig.gpu.prism.dev", 2)), 2)
	assert.Nil(t, s.allocate(all("gpu.prism.dev")), "when that is mended, docs/admin-access.md says what is not needed any more")
	assert.Equal(t, []string{"monitor"}, s.allocate(all("monitor.gpu.prism.dev")))
	assert.Equal(t, []string{"monitor"}, s.allocate(all("monitor.gpu.prism.dev")), "as often as wanted")
	assert.Nil(t, s.allocate(request("monitor.gpu.prism.dev", 2)), "there is one")
}
