package publish_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

const perfmonClass = "perfmon.gpu.prism.dev"

// withPerfmon are the options of a node with perfmon devices.
func withPerfmon(layout gpu.Layout) publish.Options {
	return publish.Options{DriverName: driverName, NodeName: nodeName, Layout: layout, Additional: gpu.Additional{Perfmon: true}}
}

// perfmonPool is the pool with the perfmon devices.
func perfmonPool(t *testing.T, n *gpu.Node, opts publish.Options) []resourceapi.Device {
	t.Helper()
	pool, found := publish.Resources(opts, n).Pools[nodeName+"/monitor"]
	require.True(t, found)
	require.Len(t, pool.Slices, 1)
	assert.Empty(t, pool.Slices[0].SharedCounters)
	return pool.Slices[0].Devices
}

// TestPerfmon_AnyLayout_OneForEachGPU: in the pool of the monitor device, without counters and shares, and with the UUID of the GPU.
func TestPerfmon_AnyLayout_OneForEachGPU(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 2)
	for _, layout := range []gpu.Layout{nil, everything(n), everything(n).Disjoint(), timeSliced(n, 4)} {
		devices := perfmonPool(t, n, withPerfmon(layout))
		require.Equal(t, []string{"gpu-" + n.GPUs[0].ID + "-perfmon", "gpu-" + n.GPUs[1].ID + "-perfmon"}, names(devices))
		for i, d := range devices {
			assert.Equal(t, "perfmon", *d.Attributes["type"].StringValue)
			assert.Equal(t, string(n.GPUs[i].UUID), *d.Attributes["parentUUID"].StringValue)
			assert.Zero(t, quantity(d, "memory"))
			assert.Empty(t, d.ConsumesCounters)
			assert.Empty(t, d.Taints)
			assert.Nil(t, d.AllowMultipleAllocations)
		}
	}
	both := withPerfmon(nil)
	both.Additional.Monitor = true
	assert.Equal(t, append([]string{"monitor"}, names(perfmonPool(t, n, withPerfmon(nil)))...), names(perfmonPool(t, n, both)))
	assert.Empty(t, perfmonPool(t, &gpu.Node{}, withPerfmon(nil)), "the pool shows that the driver publishes the devices of the node")
}

// TestPerfmon_ManyGPUs_ResourceSlicesWithinLimit: the API server limits the devices of one ResourceSlice.
func TestPerfmon_ManyGPUs_ResourceSlicesWithinLimit(t *testing.T) {
	t.Parallel()
	n := node(t, "h100-80", 8)
	for len(n.GPUs) <= publish.MaxDevicesPerSlice {
		n.GPUs = append(n.GPUs, n.GPUs...)
	}
	pool := publish.Resources(withPerfmon(nil), n).Pools[nodeName+"/monitor"]
	require.Len(t, pool.Slices, len(n.GPUs)/publish.MaxDevicesPerSlice)
}

// TestPerfmon_Taints_OfTheGPUAndItsOwn: the counters of a GPU that no claim can use are useless, and a claim that is not released holds
// them. Claims that hold the GPU itself do not.
func TestPerfmon_Taints_OfTheGPUAndItsOwn(t *testing.T) {
	t.Parallel()
	n := node(t, "h100-80", 2)
	first := gpu.Perfmon{GPU: &n.GPUs[0]}
	for name, c := range map[string]struct {
		rules []publish.TaintRule
		want  [2]string
	}{
		"sick GPU":                 {sick(n.GPUs[0].UUID), [2]string{"gpu-lost", ""}},
		"conflict":                 {publish.ConflictTaints(publish.ConflictDevicePlugin), [2]string{"conflict", "conflict"}},
		"MPS service unavailable":  {publish.UnavailableTaints(gpu.TypeMPS), [2]string{}},
		"counters busy":            {publish.BusyTaints(gpu.TypePerfmon, []gpu.UUID{n.GPUs[1].UUID, "GPU-gone"}), [2]string{"", "perfmon-busy"}},
		"no counters busy":         {publish.BusyTaints(gpu.TypePerfmon, nil), [2]string{}},
		"cleanup of the GPU":       {publish.CleanupTaints([]gpu.PendingCleanup{{GPU: n.GPUs[0].UUID}}), [2]string{}},
		"cleanup of its own claim": {publish.CleanupTaints([]gpu.PendingCleanup{{GPU: n.GPUs[0].UUID, Uses: []gpu.Use{first.Use(false)}}}), [2]string{"not-released", ""}},
	} {
		opts := withPerfmon(nil)
		opts.Taints = c.rules
		for i, d := range perfmonPool(t, n, opts) {
			var keys []string
			for _, taint := range d.Taints {
				keys = append(keys, strings.TrimPrefix(taint.Key, driverName+"/"))
			}
			assert.Equal(t, c.want[i], strings.Join(keys, ","), name)
		}
	}
	opts := withPerfmon(nil)
	opts.Taints, opts.TaintsDropped = sick(n.GPUs[0].UUID), true
	assert.Equal(t, []string{"gpu-" + n.GPUs[1].ID + "-perfmon"}, names(perfmonPool(t, n, opts)), "a taint that is not stored withdraws the device")
	opts.Taints = publish.BusyTaints(gpu.TypePerfmon, []gpu.UUID{n.GPUs[0].UUID, n.GPUs[1].UUID})
	assert.Len(t, perfmonPool(t, n, opts), 2, "busy counters become free by themselves")
	for _, d := range publish.Resources(opts, n).Pools[nodeName].Slices[0].Devices {
		assert.Empty(t, d.Taints, "a GPU can be used while its counters are busy")
	}
}

// withCounters is a claim for devices and the counters of their GPUs: one request of each class, all with the same parentUUID.
func withCounters(pairs ...resourceapi.ExactDeviceRequest) (claim resourceapi.DeviceClaim) {
	parent := resourceapi.FullyQualifiedName(driverName + "/parentUUID")
	for i, r := range pairs {
		name := string(rune('a' + i))
		counters := request(perfmonClass, 1)
		claim.Requests = append(claim.Requests, resourceapi.DeviceRequest{Name: name, Exactly: &r}, resourceapi.DeviceRequest{Name: name + "-counters", Exactly: &counters})
		claim.Constraints = append(claim.Constraints, resourceapi.DeviceConstraint{Requests: []string{name, name + "-counters"}, MatchAttribute: &parent})
	}
	return claim
}

// TestPerfmon_ConstraintParentUUID_OneHolderOfEachGPU: beside every type of device, the first claim gets a GPU and its counters, the second
// one the other GPU, and the third one waits until counters are released, although devices are free; claims without counters do not wait.
func TestPerfmon_ConstraintParentUUID_OneHolderOfEachGPU(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 2)
	for name, c := range map[string]struct {
		layout gpu.Layout
		device resourceapi.ExactDeviceRequest
		free   bool // another device is free on each GPU
	}{
		"whole GPU":         {nil, request("gpu.prism.dev", 1), false},
		"partitionable GPU": {everything(n), request("gpu.prism.dev", 1), false},
		"MIG device":        {everything(n), request("mig.gpu.prism.dev", 1), true},
		"MPS share":         {mpsLayout(n, mpsOf(4, 4)), mpsRequest(map[string]string{"memory": "4Gi"}), true},
		"time-sliced share": {timeSliced(n, 4), request("timeslice.gpu.prism.dev", 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScheduler(t, published(n, withPerfmon(c.layout)))
			claim := withCounters(c.device)
			first := s.allocateAll(claim)
			second := s.allocateAll(claim)
			assert.ElementsMatch(t, []string{n.GPUs[0].ID, n.GPUs[1].ID}, []string{s.checkPair(first), s.checkPair(second)})
			assert.Nil(t, s.allocateAll(claim), "all counters are held")
			assert.Equal(t, c.free, s.allocate(c.device) != nil, "a claim without counters does not wait for them")
			for _, r := range first {
				s.release(r)
			}
			assert.Equal(t, s.checkPair(first), s.checkPair(s.allocateAll(claim)), "after the release")
		})
	}
}

// TestPerfmon_SeveralGPUs_APairForEach: a claim for two GPUs has two pairs.
func TestPerfmon_SeveralGPUs_APairForEach(t *testing.T) {
	t.Parallel()
	n := node(t, "h100-80", 2)
	s := newScheduler(t, published(n, withPerfmon(nil)))
	got := s.allocateAll(withCounters(request("gpu.prism.dev", 1), request("gpu.prism.dev", 1)))
	require.Len(t, got, 4)
	assert.ElementsMatch(t, []string{n.GPUs[0].ID, n.GPUs[1].ID}, []string{s.checkPair(got[:2]), s.checkPair(got[2:])})
	assert.Nil(t, s.allocate(request(perfmonClass, 1)))
}

// TestPerfmon_RequestsOfOtherClasses_NeverGetIt: by capacity, too.
func TestPerfmon_RequestsOfOtherClasses_NeverGetIt(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 2)
	s := newScheduler(t, published(n, withPerfmon(everything(n))))
	byMemory := mpsRequest(map[string]string{driverName + "/migMemory": "1Gi"})
	byMemory.DeviceClassName = byCapacityClass
	for {
		got := s.allocate(byMemory)
		if got == nil {
			break
		}
		assert.NotContains(t, got[0], "perfmon")
	}
	assert.NotNil(t, s.allocate(request(perfmonClass, 2)), "they are free")
}

// allocateAll returns the devices that a claim gets, in the order of its requests, nil if it must wait.
func (s *scheduler) allocateAll(devices resourceapi.DeviceClaim) []resourceapi.DeviceRequestAllocationResult {
	s.t.Helper()
	results := s.wouldAllocateAll(s.allocator(), devices)
	for _, r := range results {
		s.hold(r)
	}
	return results
}

// checkPair returns the ID of the GPU of a device and its counters.
func (s *scheduler) checkPair(pair []resourceapi.DeviceRequestAllocationResult) string {
	s.t.Helper()
	require.Len(s.t, pair, 2)
	assert.Equal(s.t, nodeName+"/monitor", pair[1].Pool)
	id, found := strings.CutSuffix(strings.TrimPrefix(pair[1].Device, "gpu-"), "-perfmon")
	require.True(s.t, found, pair[1].Device)
	device := pair[0].Device + "-"
	assert.True(s.t, strings.HasPrefix(device, "gpu-"+id+"-"), "%s and %s", pair[0].Device, pair[1].Device)
	return id
}
