package scale

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFilter_CELEvaluations_AsBudgeted guards what a pending pod costs the scheduler on one node, by a count that no machine's speed
// changes. The counts are exact: a count of 0 would also be what is seen when the allocator's log lines change.
func TestFilter_CELEvaluations_AsBudgeted(t *testing.T) {
	t.Parallel()
	n, err := Simulated(t.Context())
	require.NoError(t, err)
	for _, c := range []struct {
		layout string
		ask    Ask
		state  State
		want   int
	}{
		{"prism-whole", AskGPU, Empty, 1},
		{"prism-whole", AskGPU, FullWhole, 0},
		{"prism-whole-monitor", AskGPU, Empty, 1},
		{"prism-whole-monitor", AskGPU, FullWhole, 1},
		{"nvidia-whole", AskGPU, FullWhole, 0},
		// A free device whose counters are taken costs an expression of the class and one of each selector.
		{"prism-mig", AskProfile, FullWhole, 400},
		{"prism-mig", AskProfileClass, FullWhole, 200},
		{"prism-mig", AskProfileClass, FullProfile, 152},
		{"prism-mig", AskProfileCapacity, Empty, 0},
		{"prism-mig", AskProfileCapacity, FullWhole, 0},
		{"prism-mig", AskProfileCapacity, FullProfile, 0},
		{"prism-mig", AskMemoryCapacity, FullWhole, 0},
		{"nvidia-mig", AskProfile, FullWhole, 400},
	} {
		l, err := LayoutByName(c.layout)
		require.NoError(t, err)
		got, err := Evaluations(t.Context(), &l, n, c.ask, c.state)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%s, %s, %s", c.layout, c.ask, c.state)
	}
}

// TestFilter_EveryAskAndState_DeviceWhereThereIsOne: what is measured is a device found where one is free, and none where the node is full.
func TestFilter_EveryAskAndState_DeviceWhereThereIsOne(t *testing.T) {
	t.Parallel()
	rows, err := Filter(t.Context(), Layouts(), 1)
	require.NoError(t, err)
	seen := map[Ask]bool{}
	for i := range rows {
		full := rows[i].State == FullWhole || rows[i].State == FullProfile
		assert.Equal(t, !full, rows[i].Found, "%s, %s, %s", rows[i].Layout, rows[i].Ask, rows[i].State)
		assert.Len(t, rows[i].Samples, 1)
		seen[rows[i].Ask] = true
	}
	assert.Len(t, seen, len(allAsks))
}

// TestLayouts_EachAsk_GetsTheDeviceThatItNames: asks that are compared get the same.
func TestLayouts_EachAsk_GetsTheDeviceThatItNames(t *testing.T) {
	t.Parallel()
	n, err := Simulated(t.Context())
	require.NoError(t, err)
	layouts := Layouts()
	for i := range layouts {
		for ask, request := range layouts[i].Asks {
			node := newNode(&layouts[i], "node", n)
			got, _, err := node.allocate(t.Context(), request)
			require.NoError(t, err)
			require.Len(t, got, 1, "%s, %s", layouts[i].Name, ask)
			want := "GPU"
			switch {
			case layouts[i].Asks[AskProfile] == nil || ask == AskGPU:
			case ask == AskMemory || ask == AskMemoryCapacity:
				want = "1g.20gb" // the smallest that has so much comes first
			default:
				want = smallest
			}
			assert.Equal(t, want, profileOf(node, got[0].Pool, got[0].Device), "%s, %s", layouts[i].Name, ask)
		}
	}
}

// TestLayouts_CapacityOfAProfile_GetsNoOtherProfile: also where smaller devices come first.
func TestLayouts_CapacityOfAProfile_GetsNoOtherProfile(t *testing.T) {
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

// profileOf is the profile of a published device, "GPU" for a whole one.
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

// TestLayouts_EightGPUs_DevicesAndSlices: each device more is one that the scheduler looks at, each ResourceSlice one that it reads for
// every pod.
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
		// 25 placements for each GPU. Here each GPU has a pool of two slices, and the node one that is empty.
		"prism-mig": {8 * 26, 17}, "nvidia-mig": {8 * 26, 9},
	}, got)
}

// TestPacking_OneH100_AsDocumented: loads and allocator are the same everywhere, so the figures are.
func TestPacking_OneH100_AsDocumented(t *testing.T) {
	t.Parallel()
	packed, err := Pack(t.Context(), Layouts())
	require.NoError(t, err)
	require.Len(t, packed, 2)
	assert.Equal(t, Packing{Layout: "prism-mig", Published: 4.15, ByName: 3.53}, packed[0], "docs/benchmarks.md and docs/mig.md have other figures")
	assert.Greater(t, packed[0].Published, packed[1].Published, "NVIDIA's order keeps as much room")
}

// TestSets_OneH100_CountersAdmitWhatHardwareDoes: no set of MIG devices is lost or wrongly admitted.
func TestSets_OneH100_CountersAdmitWhatHardwareDoes(t *testing.T) {
	t.Parallel()
	sets, err := Sets(t.Context(), Layouts())
	require.NoError(t, err)
	require.Len(t, sets, 2)
	for _, s := range sets {
		assert.Equal(t, JointSets{Layout: s.Layout, Devices: 25, Both: 2318}, s)
	}
}
