package scale

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The number of CEL expressions is the cost of a pending pod per node, independently of the machine's speed. The counts are exact, because 0
// everywhere would mean that the allocator's log message has changed.
func TestFilter_CELEvaluations_AsBudgeted(t *testing.T) {
	t.Parallel()
	n, err := Simulated(t.Context())
	require.NoError(t, err)
	for _, c := range []struct {
		layout string
		kind   RequestKind
		state  State
		want   int
	}{
		{"prism-whole", RequestGPU, Empty, 1},
		{"prism-whole", RequestGPU, FullWhole, 0},
		{"prism-whole-monitor", RequestGPU, Empty, 1},
		{"prism-whole-monitor", RequestGPU, FullWhole, 1},
		{"nvidia-whole", RequestGPU, FullWhole, 0},
		// A free device with exhausted counters costs the expression of the DeviceClass and of each selector.
		{"prism-mig", RequestProfile, FullWhole, 400},
		{"prism-mig", RequestProfileClass, FullWhole, 200},
		{"prism-mig", RequestProfileClass, FullProfile, 152},
		{"prism-mig", RequestProfileCapacity, Empty, 0},
		{"prism-mig", RequestProfileCapacity, FullWhole, 0},
		{"prism-mig", RequestProfileCapacity, FullProfile, 0},
		{"prism-mig", RequestMemoryCapacity, FullWhole, 0},
		{"nvidia-mig", RequestProfile, FullWhole, 400},
	} {
		l, err := LayoutByName(c.layout)
		require.NoError(t, err)
		got, err := Evaluations(t.Context(), &l, n, c.kind, c.state)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%s, %s, %s", c.layout, c.kind, c.state)
	}
}

func TestFilter_EveryRequestAndState_FoundUnlessFull(t *testing.T) {
	t.Parallel()
	rows, err := Filter(t.Context(), Layouts(), 1)
	require.NoError(t, err)
	seen := map[RequestKind]bool{}
	for i := range rows {
		full := rows[i].State == FullWhole || rows[i].State == FullProfile
		assert.Equal(t, !full, rows[i].Found, "%s, %s, %s", rows[i].Layout, rows[i].RequestKind, rows[i].State)
		assert.Len(t, rows[i].Samples, 1)
		seen[rows[i].RequestKind] = true
	}
	assert.Len(t, seen, len(allRequests))
}

// Requests that are compared with each other get the same kind of device.
func TestLayouts_EachRequest_IntendedDevice(t *testing.T) {
	t.Parallel()
	n, err := Simulated(t.Context())
	require.NoError(t, err)
	layouts := Layouts()
	for i := range layouts {
		for kind, request := range layouts[i].Requests {
			node := newNode(&layouts[i], "node", n)
			got, _, err := node.allocate(t.Context(), request)
			require.NoError(t, err)
			require.Len(t, got, 1, "%s, %s", layouts[i].Name, kind)
			want := "GPU"
			switch {
			case layouts[i].Requests[RequestProfile] == nil || kind == RequestGPU:
			case kind == RequestMemory || kind == RequestMemoryCapacity:
				want = "1g.20gb" // the smallest with that much memory is published first
			default:
				want = smallest
			}
			assert.Equal(t, want, profileOf(node, got[0].Pool, got[0].Device), "%s, %s", layouts[i].Name, kind)
		}
	}
}

func TestLayouts_RequestByProfileCapacity_OnlyThatProfile(t *testing.T) {
	t.Parallel()
	n, err := Simulated(t.Context())
	require.NoError(t, err)
	l, err := LayoutByName("prism-mig")
	require.NoError(t, err)
	for _, profile := range n.GPUs[0].MIG.ProfileNames() {
		node := newNode(&l, "node", n)
		got, _, err := node.allocate(t.Context(), requestCapacity(byCapacityClass(l.Driver), profileCapacity(l.Driver, profile), "1"))
		require.NoError(t, err)
		require.Len(t, got, 1, profile)
		assert.Equal(t, profile, profileOf(node, got[0].Pool, got[0].Device))
	}
}

// profileOf returns the profile of a published device, "GPU" for a whole GPU.
func profileOf(n *node, pool, device string) string {
	for _, slice := range n.slices {
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			switch {
			case slice.Spec.Pool.Name != pool || d.Name != device:
			case *d.Attributes["type"].StringValue == "gpu":
				return "GPU"
			default:
				return *d.Attributes["profile"].StringValue
			}
		}
	}
	return ""
}

// Each additional device is evaluated by the scheduler, and each ResourceSlice is read for every pod.
func TestLayouts_EightGPUs_DevicesAndSlices(t *testing.T) {
	t.Parallel()
	n, err := Simulated(t.Context())
	require.NoError(t, err)
	layouts := Layouts()
	got := map[string][2]int{}
	for i := range layouts {
		node := newNode(&layouts[i], "node", n)
		devices := 0
		for _, slice := range node.slices {
			devices += len(slice.Spec.Devices)
		}
		got[layouts[i].Name] = [2]int{devices, len(node.slices)}
	}
	assert.Equal(t, map[string][2]int{
		"prism-whole": {8, 1}, "prism-whole-monitor": {9, 2}, "nvidia-whole": {8, 1},
		// 25 placements per GPU. Prism publishes a pool of two ResourceSlices per GPU, and an empty one of the node.
		"prism-mig": {8 * 26, 17}, "nvidia-mig": {8 * 26, 9},
	}, got)
}

// Loads and allocator are deterministic, so the figures are.
func TestPacking_OneH100_AsDocumented(t *testing.T) {
	t.Parallel()
	packed, err := Pack(t.Context(), Layouts())
	require.NoError(t, err)
	require.Len(t, packed, 2)
	assert.Equal(t, Packing{Layout: "prism-mig", Published: 4.15, ByName: 3.53}, packed[0], "docs/benchmarks.md and docs/mig-details.md contain other figures")
	assert.Greater(t, packed[0].Published, packed[1].Published, "the order of NVIDIA's driver packs as well")
}

// The counters admit every set of MIG devices that the hardware supports, and no other.
func TestSets_OneH100_CountersMatchHardware(t *testing.T) {
	t.Parallel()
	sets, err := Sets(t.Context(), Layouts())
	require.NoError(t, err)
	require.Len(t, sets, 2)
	for _, s := range sets {
		assert.Equal(t, JointSets{Layout: s.Layout, Devices: 25, Both: 2318}, s)
	}
}
