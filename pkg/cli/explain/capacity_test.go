package explain_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// totals returns the total of each class of a cluster.
func (f *fragments) totals() (map[string]int, *explain.Free) {
	f.t.Helper()
	s := f.solver()
	free, err := explain.FreeCapacity(f.t.Context(), s, prismDriver, explain.ClassesOf(s.Cluster, prismDriver))
	require.NoError(f.t, err)
	all := map[string]int{}
	for _, room := range free.Rooms {
		require.Empty(f.t, room.Problem, room.Class)
		key := room.Class
		if room.Capacity != "" {
			key = room.Capacity
		}
		all[key] = room.Total
	}
	return all, free
}

func TestFreeCapacity_EmptyGPU_AsManyAsTheHardwareHolds(t *testing.T) {
	t.Parallel()
	f := newFragments(t)
	f.node("n1", "h100-80", 2, partitioned)
	all, free := f.totals()
	for class, want := range map[string]int{
		prismDriver: 2, profileClass("1g.10gb"): 14, profileClass("2g.20gb"): 6, profileClass("3g.40gb"): 4, profileClass("7g.80gb"): 2,
		"mig." + prismDriver: 14, "mps." + prismDriver: 0, prismDriver + "/p1g10gb": 14, prismDriver + "/p3g40gb": 4,
	} {
		assert.Equal(t, want, all[class], class)
	}
	assert.NotContains(t, all, "by-capacity."+prismDriver, "a claim without capacities is refused")
	assert.Zero(t, free.Stranded)
}

func TestFreeCapacity_PartlyUsed_StrandedMemoryShown(t *testing.T) {
	t.Parallel()
	f := newFragments(t)
	f.node("n1", "h100-80", 1, partitioned)
	for i := range 7 {
		require.True(t, f.run(f.pod(fmt.Sprintf("p%d", i), profileClass("1g.10gb")), "n1"))
	}
	all, free := f.totals()
	assert.Zero(t, all["mig."+prismDriver])
	assert.Equal(t, 1, free.Stranded.MemorySlices, "7 of 8 memory slices are in use, and no profile begins at the last")
	assert.Equal(t, 1, free.Stranded.GPUs)
	assert.InDelta(t, 10<<30, free.Stranded.Bytes, 2<<30)
}

func TestFreeCapacity_Shares_DefaultSizeCounted(t *testing.T) {
	t.Parallel()
	f := newFragments(t)
	f.node("n1", "h100-80", 2, func(*gpu.GPU) gpu.Modes {
		return gpu.Modes{Whole: true, TimeSlice: &gpu.Replicas{Count: 5}, MPS: &gpu.MPSSharing{MPSSize: gpu.MPSSize{
			Replicas: 10, Threads: gpu.MPSThreads{Total: 1000},
			Memory: gpu.MPSMemory{Total: 80 << 30, Default: 20 << 30, Min: 1 << 30, Max: 80 << 30, Step: 1 << 20},
		}}}
	})
	all, _ := f.totals()
	assert.Equal(t, 8, all["mps."+prismDriver], "4 shares of 20Gi on each of 2 GPUs")
	assert.Equal(t, 10, all["timeslice."+prismDriver])
	require.True(t, f.run(f.pod("p", "mps."+prismDriver), "n1"))
	all, _ = f.totals()
	assert.Equal(t, 7, all["mps."+prismDriver])
	assert.Equal(t, 5, all["timeslice."+prismDriver])
	assert.Equal(t, 1, all[prismDriver])
}

// TestFreeCapacity_EqualNodes_AskedOnce: the calls of the allocator depend on the number of different pools, not of nodes.
func TestFreeCapacity_EqualNodes_AskedOnce(t *testing.T) {
	t.Parallel()
	calls := func(nodes int) (int, map[string]int) {
		f := newFragments(t)
		for i := range nodes {
			f.node(fmt.Sprintf("n%d", i), "h100-80", 1, partitioned)
			require.True(t, f.run(f.podByCapacity(fmt.Sprintf("p%d", i), "1g.20gb"), fmt.Sprintf("n%d", i)))
		}
		before := f.solver().Calls
		all, _ := f.totals()
		return f.asks.Calls - before, all
	}
	one, few := calls(1)
	many, all := calls(30)
	assert.Equal(t, one, many)
	require.NotZero(t, few[profileClass("1g.10gb")])
	for class, n := range few {
		assert.Equal(t, 30*n, all[class], class)
	}
}

// TestFreeCapacity_RandomClusters_AsPlacedOneByOne: the number of a class is the number of pods that the allocator places on the nodes one after the
// other, all devices of the node in question.
func TestFreeCapacity_RandomClusters_AsPlacedOneByOne(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		s := scatter(t, 2000+seed)
		all, free := s.totals()
		for _, room := range free.Rooms {
			if room.Capacity != "" || room.Total > 40 {
				continue
			}
			var placed []*object
			for _, node := range s.nodes {
				for {
					o := s.pod(fmt.Sprintf("more-%d", len(placed)), room.Class)
					placed = append(placed, o)
					if !s.run(o, node) {
						break
					}
				}
			}
			assert.Equal(t, len(placed)-len(s.nodes), all[room.Class], "seed %d: %s", seed, room.Class)
			for _, o := range placed {
				s.remove(o)
			}
		}
	}
}

func TestFreeCapacity_ExpressionFails_Problem(t *testing.T) {
	t.Parallel()
	f := newFragments(t)
	f.node("n1", "h100-80", 1, partitioned)
	f.class("wrong", `device.driver == "gpu.prism.dev" && device.attributes["gpu.prism.dev"].none == "x"`)
	s := f.solver()
	free, err := explain.FreeCapacity(t.Context(), s, prismDriver, []string{"wrong", "none"})
	require.NoError(t, err)
	assert.Zero(t, free.Rooms[0].Total)
	assert.Contains(t, free.Rooms[0].Problem, "no such key: none")
	assert.Equal(t, "the DeviceClass does not exist", free.Rooms[1].Problem)
}

func TestFreeCapacity_CordonedNode_NoRoom(t *testing.T) {
	t.Parallel()
	f := newFragments(t)
	f.node("n1", "h100-80", 1, partitioned)
	f.store.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Unschedulable: true}})
	all, free := f.totals()
	assert.Zero(t, all["mig."+prismDriver])
	assert.Equal(t, []string{"n1"}, free.Cordoned)
}

func TestFreeCapacity_EndlessShares_CountEnds(t *testing.T) {
	t.Parallel()
	f := newFragments(t)
	node := "n1"
	f.store.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	f.store.PutSlice(&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: prismDriver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		Devices: []resourceapi.Device{{Name: "endless", AllowMultipleAllocations: new(true)}},
	}})
	f.class("endless", `device.driver == "gpu.prism.dev"`)
	s := f.solver()
	free, err := explain.FreeCapacity(t.Context(), s, prismDriver, []string{"endless"})
	require.NoError(t, err)
	assert.Equal(t, explain.RoomLimit, free.Rooms[0].Total)
	assert.True(t, free.Rooms[0].Unlimited)
}

func TestClassesOf_Classes_OfTheDriver(t *testing.T) {
	t.Parallel()
	f := newFragments(t)
	f.class("mine", `device.driver == "gpu.prism.dev" && true`)
	f.class("theirs", `device.driver == "nic.example.com"`)
	f.class("monitor."+prismDriver, `device.driver == "gpu.prism.dev"`)
	assert.Equal(t, []string{"by-capacity." + prismDriver, prismDriver, "mig." + prismDriver, "mine", "mps." + prismDriver, "timeslice." + prismDriver},
		explain.ClassesOf(f.store.Cluster(), prismDriver))
}
