package publish_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const timesliceClass = "timeslice.gpu.prism.dev"

// timeSliced advertises all GPUs for so many claims at once.
func timeSliced(n *gpu.Node, count int, families ...func(*gpu.Modes)) gpu.Layout {
	layout := gpu.Layout{}
	for i := range n.GPUs {
		modes := gpu.Modes{TimeSlice: &gpu.Replicas{Count: count, ShareName: "gpu-shared"}}
		for _, add := range families {
			add(&modes)
		}
		layout[n.GPUs[i].UUID] = modes
	}
	return layout
}

func andWhole(o *gpu.Modes) { o.Whole = true }

// sharedMIGDevice is a node with an H100 on which an administrator has made a 3g.40gb at memory slice 4, which two claims may use at once.
func sharedMIGDevice(t *testing.T) (*gpu.Node, gpu.Layout) {
	t.Helper()
	n := migNode(t, "h100-80", 1)
	m := n.GPUs[0].MIG
	m.Mode = gpu.MIGMode{Enabled: true, Pending: true}
	m.Instances = []gpu.Instance{{
		ID: 1, Profile: 9, Placement: gpu.Placement{Start: 4, Size: 4}, Compute: []gpu.ComputeInstance{{Slices: 3, UUID: "MIG-1"}},
	}}
	return n, gpu.Layout{n.GPUs[0].UUID: {Whole: true, MIG: []string{"3g.40gb"}, MIGReplicas: map[string]int{"3g.40gb": 2, "1g.10gb": 7}}}
}

// Eight GPUs for ten claims each are for eighty claims; the next one waits, and comes when one ends.
func TestTimeSlice_EightyClaims_AllShares(t *testing.T) {
	t.Parallel()
	n := node(t, "t4", 8)
	s := newScheduler(t, poolsOf(n, timeSliced(n, 10)))
	perGPU := map[string]int{}
	var last resourceapi.DeviceRequestAllocationResult
	for range 80 {
		results := s.wouldAllocate(s.allocator(), request(timesliceClass, 1))
		require.Len(t, results, 1)
		last = results[0]
		require.NotNil(t, last.ShareID)
		s.hold(last)
		perGPU[last.Device]++
	}
	for i := range n.GPUs {
		assert.Equal(t, 10, perGPU["gpu-"+n.GPUs[i].ID+"-timeslice"])
	}
	assert.Nil(t, s.allocate(request(timesliceClass, 1)))
	s.release(last)
	assert.Equal(t, []string{last.Device}, s.allocate(request(timesliceClass, 1)))
}

// A request for n shares gets n GPUs, and waits if there are fewer.
func TestTimeSlice_SharesOfOneRequest_DifferentGPUs(t *testing.T) {
	t.Parallel()
	n := node(t, "t4", 4)
	s := newScheduler(t, poolsOf(n, timeSliced(n, 3)))
	var all []string
	for _, d := range devicesIn(s.slices) {
		if *d.Attributes["type"].StringValue == "timeslice" {
			all = append(all, d.Name)
		}
	}
	require.Len(t, all, 4)
	assert.Nil(t, s.allocate(request(timesliceClass, 5)), "there are 12 shares, and 4 GPUs")
	for range 3 {
		assert.Equal(t, all, s.allocate(request(timesliceClass, 4)))
	}
	assert.Nil(t, s.allocate(request(timesliceClass, 1)))
}

// A share may ask for memory. The sum stays within the GPU, and a claim that asks for none does not wait for it.
func TestTimeSlice_Memory_SumWithinGPU(t *testing.T) {
	t.Parallel()
	n := node(t, "l40s", 1)
	s := newScheduler(t, poolsOf(n, timeSliced(n, 4)))
	with := func(capacity, amount string) resourceapi.ExactDeviceRequest {
		r := request(timesliceClass, 1)
		r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
			resourceapi.QualifiedName(capacity): resource.MustParse(amount),
		}}
		return r
	}
	assert.NotNil(t, s.allocate(with("memory", "30Gi")))
	assert.Nil(t, s.allocate(with("memory", "30Gi")), "an L40S has 45 GiB")
	assert.NotNil(t, s.allocate(with("memory", "10Gi")))
	assert.Nil(t, s.allocate(with("shares", "2")), "a claim is one share")
	assert.NotNil(t, s.allocate(request(timesliceClass, 1)))
	assert.NotNil(t, s.allocate(request(timesliceClass, 1)))
	assert.Nil(t, s.allocate(request(timesliceClass, 1)), "four shares are allocated")
}

// A pre-created MIG device is allocated to as many claims as its profile has replicas; one that would be made is not.
func TestTimeSlice_PreCreatedMIGDevice_Shared(t *testing.T) {
	t.Parallel()
	n, layout := sharedMIGDevice(t)
	s := newScheduler(t, poolsOf(n, layout))
	name := func(start int) []string { return []string{fmt.Sprintf("gpu-%s-mig-9-%d", n.GPUs[0].ID, start)} }
	slice := request("mig.gpu.prism.dev", 1, profileIs("3g.40gb"), fmt.Sprintf(`device.capacity[%q].multiprocessors.compareTo(quantity("60")) >= 0`, driverName))
	assert.Equal(t, name(4), s.allocate(slice))
	assert.Equal(t, name(4), s.allocate(slice))
	assert.Equal(t, name(0), s.allocate(slice), "the other one, exclusively")
	assert.Nil(t, s.allocate(slice))
}

// If the MIG mode is fixed until a reset, a GPU in MIG mode is advertised without shares, and another GPU without MIG devices.
func TestTimeSlice_MIGModeFixed_NoShares(t *testing.T) {
	t.Parallel()
	n := migNode(t, "a100-40", 1)
	g := &n.GPUs[0]
	modes := timeSliced(n, 2, andWhole, func(o *gpu.Modes) { o.MIG = []string{"7g.40gb"} })[g.UUID]
	types := func() (types []gpu.DeviceType) {
		for _, d := range modes.Devices(g) {
			types = append(types, d.Type())
		}
		return types
	}
	assert.Equal(t, []gpu.DeviceType{gpu.TypeMIG}, types())
	g.MIG.Mode.Enabled = false
	assert.Equal(t, []gpu.DeviceType{gpu.TypeGPU, gpu.TypeTimeSlice}, types())
}

// TestResources_MemoryLimits_EnforcedByContainer: of the devices on the GPU only the time-sliced share says so.
func TestResources_MemoryLimits_EnforcedByContainer(t *testing.T) {
	t.Parallel()
	n := node(t, "t4", 2)
	n.GPUs[0].MemoryLimits = true
	enforcement := map[string]string{}
	for _, d := range devicesIn(poolsOf(n, timeSliced(n, 2, andWhole))) {
		enforcement[d.Name] = *d.Attributes["memoryEnforcement"].StringValue
	}
	limited, other := gpu.TimeSliced{GPU: &n.GPUs[0]}, gpu.TimeSliced{GPU: &n.GPUs[1]}
	assert.Equal(t, "container", enforcement[string(limited.Name())])
	assert.Equal(t, "none", enforcement[string(other.Name())])
	assert.NotEqual(t, "container", enforcement[string(gpu.Whole{GPU: &n.GPUs[0]}.Name())])
	assert.Len(t, enforcement, 4)
}
