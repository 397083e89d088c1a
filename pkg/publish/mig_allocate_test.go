package publish_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// hardware is what a GPU can hold at once, worked out from the table of its model and not from what is published: instances do
// not overlap, there are no more of a profile than the driver makes, and the optical flow engines suffice.
type hardware struct {
	g       *gpu.GPU
	devices []gpu.Device
}

func (h *hardware) holds(set []int) bool {
	var taken [64]bool
	of := map[int]int{}
	ofa := uint32(0)
	for _, i := range set {
		d, isMIG := h.devices[i].(gpu.MIGDevice)
		if !isMIG {
			return len(set) == 1
		}
		for s := d.Placement.Start; s < d.Placement.Start+d.Placement.Size; s++ {
			if taken[s] {
				return false
			}
			taken[s] = true
		}
		of[d.Profile.ID]++
		ofa += d.Profile.Capacity.OFAEngines
		if of[d.Profile.ID] > d.Profile.MaxInstances {
			return false
		}
	}
	return ofa <= h.g.Capacity.OFAEngines
}

// The scheduler gives out exactly the sets of devices that the hardware can hold: from every set that can be, every further
// device is asked for. Sets only grow in one order of the devices, which reaches each once.
func TestJointlyAllocatable(t *testing.T) {
	t.Parallel()
	for board := range migTables(t) {
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			n := migNode(t, board, 1)
			// Also where MIG mode needs a reset: the counters alone must do.
			n.GPUs[0].MIG.Mode = gpu.MIGMode{}
			e := newEnumeration(t, n)
			e.grow(nil)
			t.Logf("%s: %d devices, %d sets that can be allocated", board, len(e.devices), e.sets)
			assert.Greater(t, e.sets, len(e.devices))
		})
	}
}

// enumeration walks through all sets of a GPU's devices that the scheduler can give out.
type enumeration struct {
	hardware
	s         *scheduler
	published map[string]resourceapi.Device
	sets      int
}

func newEnumeration(t *testing.T, n *gpu.Node) *enumeration {
	t.Helper()
	g, layout := &n.GPUs[0], everything(n)
	layout[g.UUID] = gpu.Offer{Whole: true, TimeSlice: &gpu.Replicas{Count: 2}, MIG: g.MIG.ProfileNames()}
	all := layout.Of(g).Devices(g)
	e := &enumeration{hardware: hardware{g: g, devices: all[:len(all)-1]}, s: newScheduler(t, n), published: map[string]resourceapi.Device{}}
	e.s.slices = nil
	for _, slice := range poolsOf(n, layout) {
		if slice.Spec.Pool.Name != nodeName {
			e.s.slices = append(e.s.slices, slice)
		}
		for _, d := range slice.Spec.Devices {
			e.published[d.Name] = d
		}
	}
	if n := len(e.s.slices); n != 2 {
		t.Fatalf("%d slices, not one with counters and one with devices", n)
	}
	return e
}

// grow asks for every device that comes after those of a set that is taken.
func (e *enumeration) grow(set []int) {
	e.sets++
	first := 0
	if len(set) > 0 {
		first = set[len(set)-1] + 1
	}
	for i := first; i < len(e.devices); i++ {
		next := append(slices.Clone(set), i)
		got := e.allocates(next)
		if want := e.holds(next); (got != nil) != want {
			require.Equal(e.s.t, want, got != nil, "%v", e.names(next))
		}
		if got != nil {
			e.s.hold(got[0])
			e.grow(next)
			e.s.release(got[0])
		}
	}
}

// allocates asks for the last device of a set whose others are taken. Only these devices are shown: the rest cannot change the
// answer, and each costs an expression.
func (e *enumeration) allocates(set []int) []resourceapi.DeviceRequestAllocationResult {
	class := "mig.gpu.prism.dev"
	switch e.devices[set[len(set)-1]].Type() {
	case gpu.TypeGPU:
		class = "gpu.prism.dev"
	case gpu.TypeTimeSlice:
		class = "timeslice.gpu.prism.dev"
	}
	shown := *e.s.slices[1]
	shown.Spec.Devices = nil
	for _, name := range e.names(set) {
		shown.Spec.Devices = append(shown.Spec.Devices, e.published[string(name)])
	}
	all := e.s.slices
	defer func() { e.s.slices = all }()
	e.s.slices = []*resourceapi.ResourceSlice{all[0], &shown}
	return e.s.offered(e.s.allocator(), request(class, 1))
}

func (h *hardware) names(set []int) []gpu.DeviceName {
	var out []gpu.DeviceName
	for _, i := range set {
		out = append(out, h.devices[i].Name())
	}
	return out
}

// Beside an instance that an administrator made, and in place of it, is published exactly what the hardware can hold with it:
// the instance may be there for ever without a claim, so counters do not count it.
func TestBesideStaticInstance(t *testing.T) {
	t.Parallel()
	for board := range migTables(t) {
		n := migNode(t, board, 1)
		g, layout := &n.GPUs[0], everything(n)
		g.MIG.Mode = gpu.MIGMode{Enabled: true, Pending: true}
		all := layout.Of(g).Devices(g)
		h := &hardware{g: g, devices: all[:len(all)-1]}
		for made, d := range h.devices {
			static, isMIG := d.(gpu.MIGDevice)
			if !isMIG {
				continue
			}
			g.MIG.Instances = []gpu.Instance{{
				ID: 1, Profile: static.Profile.ID, Placement: static.Placement,
				Compute: []gpu.ComputeInstance{{Slices: static.Profile.Slices, UUID: "MIG-1"}},
			}}
			var want []string
			for i := range h.devices {
				if i == made || h.holds([]int{made, i}) {
					want = append(want, string(h.devices[i].Name()))
				}
			}
			var got []string
			for _, slice := range poolsOf(n, layout) {
				got = append(got, names(slice.Spec.Devices)...)
			}
			got = slices.DeleteFunc(got, func(name string) bool { return strings.HasSuffix(name, "-monitor") })
			assert.ElementsMatch(t, want, got, "%s with %s", board, static.Name())
		}
	}
}

// Requests are served with the least that does, from the end that blocks least.
func TestPublishOrder(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 1)
	name := func(profile, start int) []string {
		return []string{fmt.Sprintf("gpu-%s-mig-%d-%d", n.GPUs[0].ID, profile, start)}
	}
	s := newScheduler(t, n)
	s.slices = poolsOf(n, everything(n))
	atLeast := func(size string) string {
		return fmt.Sprintf(`device.capacity[%q].memory.compareTo(quantity(%q)) >= 0`, driverName, size)
	}
	assert.Equal(t, name(19, 6), s.allocate(request("mig.gpu.prism.dev", 1, atLeast("9Gi"))), "a plain 1g, highest first")
	assert.Equal(t, name(14, 4), s.allocate(request("mig.gpu.prism.dev", 1, profileIs("2g.20gb"))))
	assert.Equal(t, name(5, 0), s.allocate(request("mig.gpu.prism.dev", 1, profileIs("4g.40gb"))), "the low half was kept free")
	assert.Nil(t, s.allocate(request("gpu.prism.dev", 1)), "no whole GPU beside a slice")
}

// TestPacking lets jobs of random profiles come and go until one must wait, and counts those that were placed.
func TestPacking(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 1)
	packed := poolsOf(n, everything(n))
	byID := poolsOf(n, everything(n))
	for _, slice := range byID {
		slices.SortFunc(slice.Spec.Devices, func(a, b resourceapi.Device) int { return cmp.Compare(a.Name, b.Name) })
	}
	const workloads = 200
	placed := map[string]int{}
	for name, published := range map[string][]*resourceapi.ResourceSlice{"packed": packed, "by id": byID} {
		for seed := range uint64(workloads) {
			s := newScheduler(t, n)
			s.slices = published
			placed[name] += s.untilRefusal(rand.New(rand.NewPCG(seed, 4)))
		}
	}
	t.Logf("jobs placed before the first refusal, mean of %d workloads: packed %.2f, by id %.2f", workloads,
		float64(placed["packed"])/workloads, float64(placed["by id"])/workloads)
	assert.Greater(t, placed["packed"], placed["by id"])
}

// untilRefusal counts the jobs that get a slice before one does not. Every third time, on average, a job ends first.
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
