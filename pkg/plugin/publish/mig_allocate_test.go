package publish_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// The scheduler allocates exactly the sets of devices that the hardware can hold: from every possible set, every further device is asked
// for. Sets only grow in one order of the devices, which reaches each set once. A set that contains an impossible set is also impossible,
// so the tested sets are sufficient.
func TestCounters_AllocatableSets_AsHardware(t *testing.T) {
	t.Parallel()
	for by, ask := range map[string]func(gpu.Device) resourceapi.ExactDeviceRequest{"class": classOf, "capacity": capacityOf} {
		for _, board := range migBoards(t) {
			t.Run(board+" by "+by, func(t *testing.T) {
				t.Parallel()
				if testing.Short() && board != "a30" {
					t.Skip("an enumeration that one goroutine makes, and most of the package's time")
				}
				n := migNode(t, board, 1)
				// Also if MIG mode needs a reset: the counters must suffice.
				n.GPUs[0].MIG.Mode = gpu.MIGMode{}
				e := newEnumeration(t, board, n)
				e.ask = ask
				e.grow(nil)
				sets, compared := 2321, 11585
				if board == "a30" {
					sets, compared = 78, 406
				}
				assert.Equal(t, sets, e.sets, "sets that can be, the empty one too")
				assert.Equal(t, compared, e.compared, "sets that the scheduler and the hardware were asked for")
			})
		}
	}
}

// enumeration walks through all sets of a GPU's devices that the scheduler can allocate.
type enumeration struct {
	*hardware
	devices        []gpu.Device
	s              *scheduler
	published      map[string]resourceapi.Device
	ask            func(gpu.Device) resourceapi.ExactDeviceRequest
	sets, compared int
}

func newEnumeration(t *testing.T, board string, n *gpu.Node) *enumeration {
	t.Helper()
	g, layout := &n.GPUs[0], everything(n)
	layout[g.UUID] = gpu.Modes{Whole: true, TimeSlice: &gpu.Replicas{Count: 2}, MIG: g.MIG.ProfileNames()}
	e := &enumeration{
		hardware: newHardware(t, board), devices: layout.Of(g).Devices(g), s: newScheduler(t, nil), published: map[string]resourceapi.Device{},
	}
	for _, slice := range poolsOf(n, layout) {
		if slice.Spec.Pool.Name != nodeName {
			e.s.slices = append(e.s.slices, slice)
		}
		for _, d := range slice.Spec.Devices {
			e.published[d.Name] = d
		}
	}
	require.Len(t, e.s.slices, 2, "one with counters and one with devices")
	return e
}

// grow asks for every device that comes after the devices of a taken set.
func (e *enumeration) grow(set []gpu.Device) {
	e.sets++
	first := 0
	if len(set) > 0 {
		first = slices.Index(e.devices, set[len(set)-1]) + 1
	}
	for _, d := range e.devices[first:] {
		next := append(slices.Clone(set), d)
		e.compared++
		got := e.allocates(next)
		if want := e.holds(next); (got != nil) != want {
			require.Equal(e.t, want, got != nil, "%v", namesOf(next))
		}
		if got != nil {
			require.Equal(e.t, string(d.Name()), got[0].Device)
			e.s.hold(got[0])
			e.grow(next)
			e.s.release(got[0])
		}
	}
}

// allocates asks for the last device of a set whose others are taken. Only these devices are shown: the rest cannot change the
// answer, and each costs an expression.
func (e *enumeration) allocates(set []gpu.Device) []resourceapi.DeviceRequestAllocationResult {
	shown := *e.s.slices[1]
	shown.Spec.Devices = nil
	for _, name := range namesOf(set) {
		shown.Spec.Devices = append(shown.Spec.Devices, e.published[string(name)])
	}
	all := e.s.slices
	defer func() { e.s.slices = all }()
	e.s.slices = []*resourceapi.ResourceSlice{all[0], &shown}
	return e.s.wouldAllocate(e.s.allocator(), e.ask(set[len(set)-1]))
}

// classOf asks for a device of the type by its class.
func classOf(d gpu.Device) resourceapi.ExactDeviceRequest {
	switch d.Type() {
	case gpu.TypeGPU:
		return request("gpu.prism.dev", 1)
	case gpu.TypeTimeSlice:
		return request("timeslice.gpu.prism.dev", 1)
	}
	return request("mig.gpu.prism.dev", 1)
}

// Beside an instance that an administrator made, exactly the devices are published that the hardware can hold with it: the instance may be
// there for ever without a claim, so counters do not count it. The instance itself is published too, as a pre-created device.
func TestResources_PreCreatedDevice_RestAdvertised(t *testing.T) {
	t.Parallel()
	for _, board := range migBoards(t) {
		n, h := migNode(t, board, 1), newHardware(t, board)
		g, layout := &n.GPUs[0], everything(n)
		g.MIG.Mode = gpu.MIGMode{Enabled: true, Pending: true}
		all := layout.Of(g).Devices(g)
		for _, d := range all {
			static, isMIG := d.(gpu.MIGDevice)
			if !isMIG {
				continue
			}
			g.MIG.Instances = []gpu.Instance{{
				ID: 1, Profile: static.Profile.ID, Placement: static.Placement,
				Compute: []gpu.ComputeInstance{{Slices: static.Profile.Slices, UUID: "MIG-1"}},
			}}
			var want []string
			for _, other := range all {
				if other == d || h.holds([]gpu.Device{d, other}) {
					want = append(want, string(other.Name()))
				}
			}
			var got []string
			for _, slice := range poolsOf(n, layout) {
				got = append(got, names(slice.Spec.Devices)...)
			}
			assert.ElementsMatch(t, want, got, "%s with %s", board, static.Name())
		}
	}
}

// Requests are allocated the least that suffices, from the end that blocks least.
func TestResources_Order_LeastFirst(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 1)
	name := func(profile, start int) []string {
		return []string{fmt.Sprintf("gpu-%s-mig-%d-%d", n.GPUs[0].ID, profile, start)}
	}
	s := newScheduler(t, poolsOf(n, everything(n)))
	atLeast := func(size string) string {
		return fmt.Sprintf(`device.capacity[%q].memory.compareTo(quantity(%q)) >= 0`, driverName, size)
	}
	assert.Equal(t, name(19, 6), s.allocate(request("mig.gpu.prism.dev", 1, atLeast("9Gi"))), "a plain 1g, highest first")
	assert.Equal(t, name(14, 4), s.allocate(request("mig.gpu.prism.dev", 1, profileIs("2g.20gb"))))
	assert.Equal(t, name(5, 0), s.allocate(request("mig.gpu.prism.dev", 1, profileIs("4g.40gb"))), "the low half was kept free")
	assert.Nil(t, s.allocate(request("gpu.prism.dev", 1)), "no whole GPU beside a MIG device")
}

// TestResources_Order_PacksBetterThanByID lets jobs of random profiles come and go until one must wait, and counts the placed jobs.
func TestResources_Order_PacksBetterThanByID(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a statistic that one goroutine makes, and half of the package's time")
	}
	n := migNode(t, "h100-80", 1)
	packed := poolsOf(n, everything(n))
	byID := poolsOf(n, everything(n))
	for _, slice := range byID {
		slices.SortFunc(slice.Spec.Devices, func(a, b resourceapi.Device) int { return cmp.Compare(a.Name, b.Name) })
	}
	const workloads = 60
	placed := map[string]int{}
	for name, published := range map[string][]*resourceapi.ResourceSlice{"packed": packed, "by id": byID} {
		for seed := range uint64(workloads) {
			s := newScheduler(t, published)
			placed[name] += s.untilRefusal(rand.New(rand.NewPCG(seed, 4)))
		}
	}
	t.Logf("jobs placed before the first refusal, mean of %d workloads: packed %.2f, by id %.2f", workloads,
		float64(placed["packed"])/workloads, float64(placed["by id"])/workloads)
	assert.Greater(t, placed["packed"], placed["by id"])
}

// untilRefusal counts the jobs that get a MIG device before one does not. Every third time, on average, a job exits first.
func (s *scheduler) untilRefusal(random *rand.Rand) int {
	s.t.Helper()
	profiles := []string{"1g.10gb", "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb"}
	for placed := 0; ; placed++ {
		if running := s.taken.UnsortedList(); len(running) > 0 && random.IntN(3) == 0 {
			slices.SortFunc(running, func(a, b structured.DeviceID) int { return cmp.Compare(a.String(), b.String()) })
			s.taken.Delete(running[random.IntN(len(running))])
		}
		if s.allocate(request("mig.gpu.prism.dev", 1, profileIs(profiles[random.IntN(len(profiles))]))) == nil {
			return placed
		}
	}
}
