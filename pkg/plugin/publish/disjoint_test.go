package publish_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// olderFeatures are the features of Kubernetes 1.35.
var olderFeatures = structured.Features{AdminAccess: true, PrioritizedList: true}

// stored returns the part of the ResourceSlices that a server without counters keeps.
func stored(published []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	var out []*resourceapi.ResourceSlice
	for _, slice := range published {
		slice = slice.DeepCopy()
		slice.Spec.SharedCounters = nil
		for i := range slice.Spec.Devices {
			slice.Spec.Devices[i].ConsumesCounters, slice.Spec.Devices[i].Taints = nil, nil
		}
		out = append(out, slice)
	}
	return out
}

// For any advertised profiles, the hardware can hold all devices of a disjoint GPU at once, and not one more.
func TestDisjoint_EveryProfileSet_HardwareHoldsAll(t *testing.T) {
	t.Parallel()
	for _, board := range migBoards(t) {
		n, h := migNode(t, board, 1), newHardware(t, board)
		g, profiles := &n.GPUs[0], n.GPUs[0].MIG.ProfileNames()
		for subset := 1; subset < 1<<len(profiles); subset++ {
			var modes gpu.Modes
			for i, name := range profiles {
				if subset&(1<<i) != 0 {
					modes.MIG = append(modes.MIG, name)
				}
			}
			h.checkDisjoint(g, modes)
		}
	}
}

// The same beside each instance that an administrator can have made.
func TestDisjoint_PreCreatedDevice_Kept(t *testing.T) {
	t.Parallel()
	for _, board := range migBoards(t) {
		n, h := migNode(t, board, 1), newHardware(t, board)
		g, modes := &n.GPUs[0], everything(n).Of(&n.GPUs[0])
		for _, d := range modes.Devices(g) {
			static, isMIG := d.(gpu.MIGDevice)
			if !isMIG {
				continue
			}
			g.MIG.Instances = []gpu.Instance{{
				ID: 1, Profile: static.Profile.ID, Placement: static.Placement,
				Compute: []gpu.ComputeInstance{{Slices: static.Profile.Slices, UUID: "MIG-1"}},
			}}
			modes := gpu.Layout{g.UUID: modes}.Of(g)
			var names []gpu.DeviceName
			for _, d := range h.checkDisjoint(g, modes) {
				names = append(names, d.Name())
			}
			assert.Contains(t, names, static.Name())
			g.MIG.Instances = nil
		}
	}
}

// checkDisjoint returns the MIG devices of the disjoint GPU.
func (h *hardware) checkDisjoint(g *gpu.GPU, modes gpu.Modes) []gpu.Device {
	h.t.Helper()
	chosen := gpu.Layout{g.UUID: modes}.Disjoint().Of(g).Devices(g)
	require.NotEmpty(h.t, chosen, "%v", modes.MIG)
	assert.True(h.t, h.holds(chosen), "%v of %v", namesOf(chosen), modes.MIG)
	for _, d := range modes.Devices(g) {
		if !slices.Contains(chosen, d) {
			assert.False(h.t, h.holds(append(slices.Clone(chosen), d)), "%s is also possible beside %v", d.Name(), namesOf(chosen))
		}
	}
	return chosen
}

// A scheduler without counters allocates everything that is published. The hardware can hold it if the layout is disjoint, and
// cannot if it is not.
func TestDisjoint_ServerWithoutCounters_AllocatesWhatHardwareHolds(t *testing.T) {
	t.Parallel()
	for _, board := range migBoards(t) {
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			n, h := migNode(t, board, 2), newHardware(t, board)
			n.GPUs[0].MIG.Mode.Enabled = false
			layout := everything(n)
			layout[n.GPUs[1].UUID] = gpu.Modes{MIG: n.GPUs[1].MIG.ProfileNames()}
			holds := func(layout gpu.Layout) []bool {
				s := newScheduler(t, stored(poolsOf(n, layout)))
				s.features = olderFeatures
				allocated := s.exhaust()
				var out []bool
				for i := range n.GPUs {
					inUse := slices.DeleteFunc(layout.Of(&n.GPUs[i]).Devices(&n.GPUs[i]), func(d gpu.Device) bool {
						return !slices.Contains(allocated, string(d.Name()))
					})
					require.NotEmpty(t, inUse, "every GPU is of use")
					out = append(out, h.holds(inUse))
				}
				return out
			}
			assert.Equal(t, []bool{true, true}, holds(layout.Disjoint()))
			assert.Contains(t, holds(layout), false)
		})
	}
}

// exhaust requests GPUs and MIG devices until there are none.
func (s *scheduler) exhaust() []string {
	s.t.Helper()
	var allocated []string
	for _, class := range []string{"gpu.prism.dev", "mig.gpu.prism.dev"} {
		for devices := s.allocate(request(class, 1)); devices != nil; devices = s.allocate(request(class, 1)) {
			allocated = append(allocated, devices...)
		}
	}
	return allocated
}

// TestDisjoint_SeveralModes_OneFamily: on a server that keeps no counters a GPU has one family, and time-sliced shares come before others.
func TestDisjoint_SeveralModes_OneFamily(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 1)
	g := &n.GPUs[0]
	shared, profiles := &gpu.Replicas{Count: 2}, g.MIG.ProfileNames()
	for name, c := range map[string]struct {
		modes gpu.Modes
		want  gpu.DeviceType
	}{
		"whole, shares, MIG":      {gpu.Modes{Whole: true, TimeSlice: shared, MIG: profiles}, gpu.TypeGPU},
		"whole, shares, MPS, MIG": {gpu.Modes{Whole: true, TimeSlice: shared, MPS: mpsOf(2, 1), MIG: profiles}, gpu.TypeGPU},
		"shares, MIG":             {gpu.Modes{TimeSlice: shared, MIG: profiles}, gpu.TypeTimeSlice},
		"shares, MPS, MIG":        {gpu.Modes{TimeSlice: shared, MPS: mpsOf(2, 1), MIG: profiles}, gpu.TypeTimeSlice},
		"MPS shares, MIG":         {gpu.Modes{MPS: mpsOf(2, 1), MIG: profiles}, gpu.TypeMPS},
	} {
		devices := gpu.Layout{g.UUID: c.modes}.Disjoint().Of(g).Devices(g)
		require.Len(t, devices, 1, name)
		assert.Equal(t, c.want, devices[0].Type(), name)
	}
}
