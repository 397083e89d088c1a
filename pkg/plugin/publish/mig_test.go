package publish_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// everything advertises all GPUs whole and in every profile.
func everything(n *gpu.Node) gpu.Layout {
	layout := gpu.Layout{}
	for i := range n.GPUs {
		layout[n.GPUs[i].UUID] = gpu.Modes{Whole: true, MIG: n.GPUs[i].MIG.ProfileNames()}
	}
	return layout
}

// poolsOf gives all pools, in the order of their names, the form they have in the API server.
func poolsOf(n *gpu.Node, layout gpu.Layout, pending ...gpu.PendingCleanup) []*resourceapi.ResourceSlice {
	return published(n, publish.Options{DriverName: driverName, NodeName: nodeName, Layout: layout, Taints: publish.CleanupTaints(pending)})
}

func published(n *gpu.Node, opts publish.Options) []*resourceapi.ResourceSlice {
	pools := publish.Resources(opts, n).Pools
	var out []*resourceapi.ResourceSlice
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		for i, slice := range pools[pool].Slices {
			name := nodeName
			out = append(out, &resourceapi.ResourceSlice{
				TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%d-%s-%s", i, driverName, filepath.Base(pool))},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: driverName, NodeName: &name, Devices: slice.Devices, SharedCounters: slice.SharedCounters,
					Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(len(pools[pool].Slices))},
				},
			})
		}
	}
	return out
}

// devicesIn are the devices of all these ResourceSlices.
func devicesIn(slices []*resourceapi.ResourceSlice) (devices []resourceapi.Device) {
	for _, slice := range slices {
		devices = append(devices, slice.Spec.Devices...)
	}
	return devices
}

// Every pool of a large node keeps within the limits of the API server.
func TestResources_LargeNode_WithinAPILimits(t *testing.T) {
	t.Parallel()
	for _, board := range migBoards(t) {
		n := migNode(t, board, 16)
		layout := everything(n)
		pools := map[string]int{}
		for _, slice := range poolsOf(n, layout) {
			pools[slice.Spec.Pool.Name]++
			checkSlice(t, slice)
		}
		assert.Len(t, pools, 17, "one pool per GPU, and the node's")
		for i := range n.GPUs {
			assert.Equal(t, 2, pools[nodeName+"/gpu-"+n.GPUs[i].ID])
		}
		assert.Equal(t, 1, pools[nodeName], "the node's pool says that the driver runs")
	}
}

// The GPU with the most memory slices and placements that NVIDIA documents: 12 and 30, on an RTX PRO 6000 Blackwell.
func TestResources_LargestGPU_WithinAPILimits(t *testing.T) {
	t.Parallel()
	m := &gpu.MIG{}
	for i, kind := range []struct{ slices, size, extras int }{{1, 3, 5}, {2, 6, 4}, {4, 12, 2}} {
		for extra := range kind.extras {
			p := gpu.MIGProfile{ID: 10*i + extra, Name: fmt.Sprintf("%dg.%dgb%s", kind.slices, 8*kind.size, []string{"", "+me", "+gfx", "+me.all", "-me"}[extra])}
			p.Capacity.MemoryBytes = uint64(8*kind.size) << 30
			for start := 0; start < 12; start += kind.size {
				p.Placements = append(p.Placements, gpu.Placement{Start: start, Size: kind.size})
			}
			m.Profiles = append(m.Profiles, p)
		}
	}
	n := migNode(t, "b200-180", 1)
	n.GPUs[0].MIG = m
	published := 0
	for _, slice := range poolsOf(n, everything(n)) {
		checkSlice(t, slice)
		published += len(slice.Spec.Devices)
	}
	assert.Equal(t, 1+30, published)
}

func checkSlice(t *testing.T, slice *resourceapi.ResourceSlice) {
	t.Helper()
	assert.False(t, len(slice.Spec.Devices) > 0 && len(slice.Spec.SharedCounters) > 0, "the API wants counters and devices apart")
	assert.LessOrEqual(t, len(slice.Spec.Devices), resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures)
	assert.LessOrEqual(t, len(slice.Spec.SharedCounters), resourceapi.ResourceSliceMaxCounterSets)
	for _, set := range slice.Spec.SharedCounters {
		assert.Empty(t, validation.IsDNS1123Label(set.Name))
		checkCounters(t, set.Counters)
	}
	for _, d := range slice.Spec.Devices {
		assert.LessOrEqual(t, len(d.ConsumesCounters), resourceapi.ResourceSliceMaxDeviceCounterConsumptionsPerDevice)
		for _, consumption := range d.ConsumesCounters {
			checkCounters(t, consumption.Counters)
		}
		d.ConsumesCounters = nil
		checkDevice(t, d)
	}
}

func checkCounters(t *testing.T, counters map[string]resourceapi.Counter) {
	t.Helper()
	assert.NotEmpty(t, counters)
	assert.LessOrEqual(t, len(counters), resourceapi.ResourceSliceMaxCountersPerCounterSet)
	for name, c := range counters {
		assert.Empty(t, validation.IsDNS1123Label(name))
		assert.Positive(t, c.Value.Sign(), name)
	}
}

// Whole GPUs of a node stay in their pool when others are partitioned.
func TestResources_MixedNode_PoolPerPartitionedGPU(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 3)
	layout := everything(n)
	delete(layout, n.GPUs[0].UUID)
	layout[n.GPUs[2].UUID] = gpu.Modes{MIG: []string{"3g.40gb"}}
	byPool := map[string][]string{}
	for _, slice := range poolsOf(n, layout) {
		byPool[slice.Spec.Pool.Name] = append(byPool[slice.Spec.Pool.Name], names(slice.Spec.Devices)...)
	}
	id := func(i int) string { return "gpu-" + n.GPUs[i].ID }
	assert.Equal(t, []string{id(0)}, byPool[nodeName])
	assert.Len(t, byPool[nodeName+"/"+id(1)], 1+25)
	assert.Equal(t, []string{id(2) + "-mig-9-4", id(2) + "-mig-9-0"}, byPool[nodeName+"/"+id(2)])
}

// Without a layout, the published devices do not depend on the known MIG profiles.
func TestResources_NoLayout_WholeOnly(t *testing.T) {
	t.Parallel()
	opts := publish.Options{DriverName: driverName, NodeName: nodeName}
	for _, board := range migBoards(t) {
		assert.Empty(t, cmp.Diff(publish.Resources(opts, node(t, board, 8)), publish.Resources(opts, migNode(t, board, 8))))
	}
}

// TestTaints_PendingCleanup_WhatOverlaps: what was not released keeps claims from overlapping devices, and from nothing else.
func TestTaints_PendingCleanup_WhatOverlaps(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 2)
	id := "gpu-" + n.GPUs[0].ID
	var every []string
	for _, d := range everything(n).Of(&n.GPUs[0]).Devices(&n.GPUs[0]) {
		every = append(every, string(d.Name()))
	}
	require.Len(t, every, 26)
	for name, c := range map[string]struct {
		uses []gpu.Use
		want []string
	}{
		"a GPU": {nil, every},
		"a MIG device": {[]gpu.Use{{Type: gpu.TypeMIG, Placement: gpu.Placement{Start: 6, Size: 1}}}, []string{
			id, id + "-mig-0-0", id + "-mig-9-4", id + "-mig-15-6", id + "-mig-19-6", id + "-mig-20-6",
		}},
	} {
		var tainted []string
		for _, d := range devicesIn(poolsOf(n, everything(n), gpu.PendingCleanup{GPU: n.GPUs[0].UUID, Uses: c.uses})) {
			if len(d.Taints) > 0 {
				assert.Equal(t, []resourceapi.DeviceTaint{{Key: driverName + "/not-released", Effect: resourceapi.DeviceTaintEffectNoSchedule}}, d.Taints)
				tainted = append(tainted, d.Name)
			}
		}
		assert.ElementsMatch(t, c.want, tainted, name)
	}
}

// The scheduler allocates devices beside a MIG device that was not released.
func TestAllocate_BesidePendingCleanup_Allocated(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 1)
	s := newScheduler(t, poolsOf(n, everything(n), gpu.PendingCleanup{
		GPU: n.GPUs[0].UUID, Uses: []gpu.Use{{Type: gpu.TypeMIG, Placement: gpu.Placement{Start: 4, Size: 4}}},
	}))
	assert.Nil(t, s.allocate(request("gpu.prism.dev", 1)))
	assert.Equal(t, []string{"gpu-" + n.GPUs[0].ID + "-mig-9-0"}, s.allocate(request("mig.gpu.prism.dev", 1, profileIs("3g.40gb"))))
	assert.Nil(t, s.allocate(request("mig.gpu.prism.dev", 1)))
}

// A sum of memory that the driver can make is never forbidden, whatever it says the GPU has.
func TestCounters_Memory_CoversAllInstances(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 1)
	n.GPUs[0].Capacity.MemoryBytes = 1 << 30
	s := newScheduler(t, poolsOf(n, everything(n)))
	assert.Len(t, s.allocate(request("mig.gpu.prism.dev", 2, profileIs("3g.40gb"))), 2)
}

func profileIs(name string) string {
	return fmt.Sprintf(`device.attributes[%q].profile == %q`, driverName, name)
}
