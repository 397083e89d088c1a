package publish_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// olderFeatures are those of Kubernetes 1.35.
var olderFeatures = structured.Features{AdminAccess: true, PrioritizedList: true}

// stored is what a server without counters keeps of the slices.
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

// usable leaves out the monitor, which comes last.
func usable(o gpu.Offer, g *gpu.GPU) []gpu.Device {
	all := o.Devices(g)
	return all[:len(all)-1]
}

// indices counts from 0 to below n.
func indices(n int) []int {
	var out []int
	for i := range n {
		out = append(out, i)
	}
	return out
}

// The slices for a server without counters: the first GPU is offered whole too, the second in all its profiles.
func TestGoldenDisjoint(t *testing.T) {
	t.Parallel()
	for board := range migTables(t) {
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			n := migNode(t, board, 2)
			n.GPUs[0].MIG.Mode.Enabled = false
			layout := everything(n)
			layout[n.GPUs[1].UUID] = gpu.Offer{MIG: n.GPUs[1].MIG.ProfileNames()}
			slices := poolsOf(n, layout.Disjoint())
			require.Empty(t, cmp.Diff(slices, stored(slices)), "such a server keeps all of it")
			got := render(t, slices)
			file := filepath.Join("testdata", "disjoint-"+board+".yaml")
			if *update {
				require.NoError(t, os.WriteFile(file, got, 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err, "go test ./pkg/publish -update writes it")
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s is different; if that is wanted: go test ./pkg/publish -update\n%s", file, diff)
			}
		})
	}
}

// Whichever profiles are on offer, the hardware can hold all devices of a disjoint offer at once, and not one more.
func TestDisjointHoldsAll(t *testing.T) {
	t.Parallel()
	for board := range migTables(t) {
		n := migNode(t, board, 1)
		g, profiles := &n.GPUs[0], n.GPUs[0].MIG.ProfileNames()
		for subset := 1; subset < 1<<len(profiles); subset++ {
			var offer gpu.Offer
			for i, name := range profiles {
				if subset&(1<<i) != 0 {
					offer.MIG = append(offer.MIG, name)
				}
			}
			checkDisjoint(t, g, offer)
		}
	}
}

// The same beside each instance that an administrator can have made.
func TestDisjointBesideStaticInstance(t *testing.T) {
	t.Parallel()
	for board := range migTables(t) {
		n := migNode(t, board, 1)
		g, offer := &n.GPUs[0], everything(n).Of(&n.GPUs[0])
		for _, d := range usable(offer, g) {
			static, isMIG := d.(gpu.MIGDevice)
			if !isMIG {
				continue
			}
			g.MIG.Instances = []gpu.Instance{{
				ID: 1, Profile: static.Profile.ID, Placement: static.Placement,
				Compute: []gpu.ComputeInstance{{Slices: static.Profile.Slices, UUID: "MIG-1"}},
			}}
			offer := gpu.Layout{g.UUID: offer}.Of(g)
			var names []gpu.DeviceName
			for _, d := range checkDisjoint(t, g, offer) {
				names = append(names, d.Name())
			}
			assert.Contains(t, names, static.Name())
			g.MIG.Instances = nil
		}
	}
}

// checkDisjoint returns the MIG devices of the disjoint offer.
func checkDisjoint(t *testing.T, g *gpu.GPU, offer gpu.Offer) []gpu.Device {
	t.Helper()
	chosen := usable(gpu.Layout{g.UUID: offer}.Disjoint().Of(g), g)
	require.NotEmpty(t, chosen, "%v", offer.MIG)
	h := &hardware{g: g, devices: chosen}
	assert.True(t, h.holds(indices(len(chosen))), "%v of %v", h.names(indices(len(chosen))), offer.MIG)
	for _, d := range usable(offer, g) {
		if !slices.Contains(chosen, d) {
			more := &hardware{g: g, devices: append(slices.Clone(chosen), d)}
			assert.False(t, more.holds(indices(len(chosen)+1)), "%s is also possible beside %v", d.Name(), h.names(indices(len(chosen))))
		}
	}
	return chosen
}

// A scheduler without counters gives out everything that is published. The hardware can hold it if the layout is disjoint, and
// cannot if it is not.
func TestServerWithoutCounters(t *testing.T) {
	t.Parallel()
	for board := range migTables(t) {
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			n := migNode(t, board, 2)
			n.GPUs[0].MIG.Mode.Enabled = false
			layout := everything(n)
			layout[n.GPUs[1].UUID] = gpu.Offer{MIG: n.GPUs[1].MIG.ProfileNames()}
			holds := func(layout gpu.Layout) []bool {
				s := newScheduler(t, n)
				s.features, s.slices = olderFeatures, stored(poolsOf(n, layout))
				given := s.exhaust()
				var out []bool
				for i := range n.GPUs {
					h := &hardware{g: &n.GPUs[i], devices: slices.DeleteFunc(usable(layout.Of(&n.GPUs[i]), &n.GPUs[i]), func(d gpu.Device) bool {
						return !slices.Contains(given, string(d.Name()))
					})}
					require.NotEmpty(t, h.devices, "every GPU is of use")
					out = append(out, h.holds(indices(len(h.devices))))
				}
				return out
			}
			assert.Equal(t, []bool{true, true}, holds(layout.Disjoint()))
			assert.Contains(t, holds(layout), false)
		})
	}
}

// exhaust asks for GPUs and slices until there are none.
func (s *scheduler) exhaust() []string {
	s.t.Helper()
	var given []string
	for _, class := range []string{"gpu.prism.dev", "mig.gpu.prism.dev"} {
		for devices := s.allocate(request(class, 1)); devices != nil; devices = s.allocate(request(class, 1)) {
			given = append(given, devices...)
		}
	}
	return given
}
