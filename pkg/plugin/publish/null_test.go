package publish_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
	"github.com/prism-gpu/prism/test/null"
)

// withNull are options for a node each of whose GPUs is advertised in every mode there is, and in one that only a test knows.
func withNull(n *gpu.Node) publish.Options {
	layout := gpu.Layout{}
	for i := range n.GPUs {
		modes := gpu.Modes{Whole: true, TimeSlice: &gpu.Replicas{Count: 2}, Extra: []gpu.Mode{null.Mode{}}}
		if m := n.GPUs[i].MIG; m != nil {
			modes.MIG = m.ProfileNames()
		}
		layout[n.GPUs[i].UUID] = modes
	}
	return publish.Options{
		DriverName: driverName, NodeName: nodeName, Layout: layout, Additional: gpu.Additional{Monitor: true, Perfmon: true},
		Families: append(publish.Families(), null.Publishes{}),
	}
}

// The table contains every family: all devices of the layout are published, in the order of the table.
func TestFamilies_EveryAdvertisedDevice_Published(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 2)
	opts := withNull(n)
	want := map[string]gpu.DeviceType{"monitor": gpu.TypeMonitor}
	for i := range n.GPUs {
		for _, d := range opts.Layout.Of(&n.GPUs[i]).Devices(&n.GPUs[i]) {
			want[string(d.Name())] = d.Type()
		}
		want["gpu-"+n.GPUs[i].ID+"-perfmon"] = gpu.TypePerfmon
	}
	got := map[string]gpu.DeviceType{}
	var order []gpu.DeviceType // of the first GPU
	for _, slice := range published(n, opts) {
		for _, d := range slice.Spec.Devices {
			kind := gpu.DeviceType(*d.Attributes[publish.AttrType].StringValue)
			got[d.Name] = kind
			if slice.Spec.Pool.Name == nodeName+"/gpu-"+n.GPUs[0].ID {
				order = append(order, kind)
			}
		}
	}
	assert.Equal(t, want, got)
	assert.Equal(t, []gpu.DeviceType{gpu.TypeGPU, gpu.TypeTimeSlice, gpu.TypeMIG, null.Type}, slices.Compact(order))
}

// Without counters a GPU has devices of one family: the added one, if no other is advertised.
func TestNull_NoSharedCounters_OnlyFamilyOfItsGPU(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 2)
	opts := withNull(n)
	opts.Layout[n.GPUs[1].UUID] = gpu.Modes{Extra: []gpu.Mode{null.Mode{}}}
	opts.Layout, opts.Additional = opts.Layout.Disjoint(), gpu.Additional{Monitor: true}
	var got []string
	for _, slice := range published(n, opts) {
		assert.Empty(t, slice.Spec.SharedCounters)
		got = append(got, names(slice.Spec.Devices)...)
	}
	assert.ElementsMatch(t, []string{"monitor", "gpu-" + n.GPUs[0].ID, "gpu-" + n.GPUs[1].ID + "-null"}, got)
}

// TestNull_Shared_ManyClaimsAllocated: the scheduler counts the shares of an added family, too.
func TestNull_Shared_ManyClaimsAllocated(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 1)
	opts := withNull(n)
	opts.Layout[n.GPUs[0].UUID] = gpu.Modes{Extra: []gpu.Mode{null.Mode{Replicas: 3}}}
	for _, d := range devicesIn(published(n, opts)) {
		if *d.Attributes[publish.AttrType].StringValue != string(null.Type) {
			continue
		}
		require.NotNil(t, d.AllowMultipleAllocations)
		assert.True(t, *d.AllowMultipleAllocations)
		shares := d.Capacity[publish.CapShares]
		assert.Equal(t, int64(3), shares.Value.Value())
		assert.Equal(t, int64(1), shares.RequestPolicy.Default.Value())
		return
	}
	t.Fatal("no null device is published")
}
