package publish_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

const (
	mpsClass = "mps.gpu.prism.dev"
	gib      = int64(1) << 30
)

// mpsOf is a sharing of 40 GiB, with so many claims of 1 GiB up to all, and so many GiB by default.
func mpsOf(replicas int, defaultGiB int64) *gpu.MPSSharing {
	return &gpu.MPSSharing{ShareName: "gpu-mps", MPSSize: gpu.MPSSize{
		Replicas: replicas, Threads: gpu.MPSThreads{Total: 100},
		Memory: gpu.MPSMemory{Total: 40 * gib, Default: defaultGiB * gib, Min: gib, Max: 40 * gib, Step: gib},
	}}
}

// mpsLayout advertises all GPUs of a node with that sharing.
func mpsLayout(n *gpu.Node, sharing *gpu.MPSSharing, families ...func(*gpu.Modes)) gpu.Layout {
	layout := gpu.Layout{}
	for i := range n.GPUs {
		modes := gpu.Modes{MPS: sharing}
		for _, add := range families {
			add(&modes)
		}
		layout[n.GPUs[i].UUID] = modes
	}
	return layout
}

// pluginFile is a file of a fork of NVIDIA's device plugin, resolved for a node.
func pluginFile(t *testing.T, n *gpu.Node) gpu.Layout {
	t.Helper()
	c, _, err := nodeconfig.Parse([]byte("version: v1\nsharing: {mps: {failRequestsGreaterThanOne: true, resources: [{name: nvidia.com/gpu, "+
		"rename: nvidia.com/gpu-2gb, memoryGB: 2, replicas: 2, devices: ['0']}]}}"), "")
	require.NoError(t, err)
	layout, _, err := nodeconfig.Resolve(c, n)
	require.NoError(t, err)
	return layout
}

// mpsRequest asks for an MPS share with so much of capacities.
func mpsRequest(amounts map[string]string, expressions ...string) resourceapi.ExactDeviceRequest {
	r := request(mpsClass, 1, expressions...)
	r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
	for name, amount := range amounts {
		r.Capacity.Requests[resourceapi.QualifiedName(name)] = resource.MustParse(amount)
	}
	return r
}

// checkPolicies applies the API server's rules for request policies.
func checkPolicies(t *testing.T, d *resourceapi.Device) {
	t.Helper()
	for name, c := range d.Capacity {
		if c.RequestPolicy == nil {
			assert.Nil(t, d.AllowMultipleAllocations, "%s: a share would consume all of %s", d.Name, name)
			continue
		}
		require.NotNil(t, d.AllowMultipleAllocations, "%s: the API server refuses the policy of %s", d.Name, name)
		def, valid := c.RequestPolicy.Default.Value(), c.RequestPolicy.ValidRange
		lowest, most := valid.Min.Value(), c.Value.Value()
		if valid.Max != nil {
			most = valid.Max.Value()
		}
		assert.True(t, lowest <= def && def <= most && most <= c.Value.Value(), "%s: %s", d.Name, name)
		if valid.Step != nil {
			step := valid.Step.Value()
			assert.True(t, step > 0 && lowest+step <= c.Value.Value() && (def-lowest)%step == 0, "%s: %s", d.Name, name)
			if valid.Max != nil {
				assert.Zero(t, (most-lowest)%step, "%s: %s", d.Name, name)
			}
		}
	}
}

// A claim gets the memory that it requests, in steps, or the default; the sum stays within the memory of all shares.
func TestMPS_Memory_SumWithinCapacity(t *testing.T) {
	t.Parallel()
	n := node(t, "l40s", 1)
	s := newScheduler(t, poolsOf(n, mpsLayout(n, mpsOf(48, 8))))
	memory := func(amount string) resourceapi.ExactDeviceRequest {
		return mpsRequest(map[string]string{"memory": amount})
	}
	consumed := func(r resourceapi.ExactDeviceRequest) int64 {
		got := s.wouldAllocate(s.allocator(), r)
		require.Len(t, got, 1)
		require.NotNil(t, got[0].ShareID)
		s.hold(got[0])
		amount, threads := got[0].ConsumedCapacity["memory"], got[0].ConsumedCapacity["activeThreadPercentage"]
		assert.Zero(t, threads.Value(), "no limit unless one is requested")
		return amount.Value()
	}
	assert.Nil(t, s.allocate(memory("41Gi")), "more than there is")
	assert.Equal(t, 8*gib, consumed(request(mpsClass, 1)))
	assert.Equal(t, 20*gib, consumed(memory("20Gi")))
	assert.Equal(t, 4*gib, consumed(memory("3073Mi")), "the next step")
	assert.Equal(t, gib, consumed(memory("1")), "the least")
	assert.Nil(t, s.allocate(request(mpsClass, 1)), "8 GiB of the 7 that are left")
	assert.Nil(t, s.allocate(memory("7169Mi")))
	assert.Equal(t, 7*gib, consumed(memory("7Gi")))
	assert.Nil(t, s.allocate(memory("1Mi")), "nothing is left")
	assert.Nil(t, s.allocate(mpsRequest(map[string]string{"multiprocessors": "1"})), "a capacity that shares do not have")
}

// There are no more claims than replicas, whatever memory is left, and a claim is one share.
func TestMPS_Shares_StopAtReplicas(t *testing.T) {
	t.Parallel()
	n := node(t, "l40s", 1)
	s := newScheduler(t, nil)
	for _, replicas := range []int{1, 3} {
		s.slices = poolsOf(n, mpsLayout(n, mpsOf(replicas, 1)))
		assert.Nil(t, s.allocate(mpsRequest(map[string]string{"shares": "2"})))
		assert.Nil(t, s.allocate(request(mpsClass, 2)), "two shares of one GPU for one request")
		var held []resourceapi.DeviceRequestAllocationResult
		for range replicas {
			got := s.wouldAllocate(s.allocator(), request(mpsClass, 1))
			require.Len(t, got, 1)
			require.NotNil(t, got[0].ShareID, "also where there is one share")
			s.hold(got[0])
			held = append(held, got[0])
		}
		assert.Nil(t, s.allocate(request(mpsClass, 1)))
		for _, r := range held {
			s.release(r)
		}
	}
}

// Active thread percentages add up to the total; 0 is no part of it. One share has at most 100.
func TestMPS_ActiveThreadPercentage_SumWithinTotal(t *testing.T) {
	t.Parallel()
	n := node(t, "l40s", 1)
	sharing := mpsOf(10, 1)
	sharing.Threads = gpu.MPSThreads{Default: 0, Total: 150}
	s := newScheduler(t, poolsOf(n, mpsLayout(n, sharing)))
	threads := func(amount string) resourceapi.ExactDeviceRequest {
		return mpsRequest(map[string]string{"activeThreadPercentage": amount})
	}
	assert.Nil(t, s.allocate(threads("101")))
	assert.NotNil(t, s.allocate(threads("100")))
	assert.NotNil(t, s.allocate(request(mpsClass, 1)))
	assert.Nil(t, s.allocate(threads("51")))
	assert.NotNil(t, s.allocate(threads("50")))
	assert.Nil(t, s.allocate(threads("1")))
	assert.NotNil(t, s.allocate(threads("0")))
	assert.NotNil(t, s.allocate(request(mpsClass, 1)))
}

// A file of a fork of NVIDIA's device plugin: two pods on GPU 0 with 2 GiB each, a third one waits, and the other GPUs are whole.
func TestMPS_PluginFile_TwoClaims(t *testing.T) {
	t.Parallel()
	n := node(t, "l40s", 3)
	s := newScheduler(t, poolsOf(n, pluginFile(t, n)))
	named := request(mpsClass, 1, `device.attributes["gpu.prism.dev"].shareName == "gpu-2gb"`)
	for range 2 {
		got := s.wouldAllocate(s.allocator(), named)
		require.Len(t, got, 1)
		assert.Equal(t, "gpu-"+n.GPUs[0].ID+"-mps", got[0].Device)
		memory := got[0].ConsumedCapacity["memory"]
		assert.Equal(t, 2*gib, memory.Value())
		s.hold(got[0])
	}
	assert.Nil(t, s.allocate(named))
	assert.Equal(t, []string{"gpu-" + n.GPUs[1].ID, "gpu-" + n.GPUs[2].ID}, s.allocate(request("gpu.prism.dev", 2)))
	assert.Nil(t, s.allocate(request("gpu.prism.dev", 1)), "GPU 0 is not advertised whole")
}
