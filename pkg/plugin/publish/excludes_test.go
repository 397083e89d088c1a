package publish_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/null"
)

// TestCounters_EveryPair_AsExcludes: the scheduler, which knows counters only, keeps two devices of a GPU apart exactly if claims of both
// would be refused.
func TestCounters_EveryPair_AsExcludes(t *testing.T) {
	t.Parallel()
	for _, board := range migBoards(t) {
		n := migNode(t, board, 1)
		g, layout := &n.GPUs[0], everything(n)
		modes := layout[g.UUID]
		modes.TimeSlice, modes.MPS = &gpu.Replicas{Count: 2}, mpsOf(2, 2)
		layout[g.UUID] = modes
		total := map[string]resourceapi.Counter{}
		takes := map[string]map[string]resourceapi.Counter{}
		for _, slice := range poolsOf(n, layout) {
			for _, set := range slice.Spec.SharedCounters {
				total = set.Counters
			}
			for _, d := range slice.Spec.Devices {
				for _, consumed := range d.ConsumesCounters {
					takes[d.Name] = consumed.Counters
				}
			}
		}
		devices := modes.Devices(g)
		for i, a := range devices {
			for _, b := range devices[:i] {
				fits := true
				for name, has := range total {
					sum := takes[string(a.Name())][name].Value.DeepCopy()
					sum.Add(takes[string(b.Name())][name].Value)
					fits = fits && sum.Cmp(has.Value) <= 0
				}
				assert.Equal(t, !fits, gpu.Excludes(a.Use(false), b.Use(false)), "%s: %s and %s", board, a.Name(), b.Name())
			}
		}
	}
}

// TestCounters_Families_ExcludeEachOther in every order, until the last claim ends: also a family that is added, which the others do not
// know.
func TestCounters_Families_ExcludeEachOther(t *testing.T) {
	t.Parallel()
	n := migNode(t, "h100-80", 1)
	slices := func(o *gpu.Modes) { o.MIG = n.GPUs[0].MIG.ProfileNames() }
	shared := func(o *gpu.Modes) { o.TimeSlice = &gpu.Replicas{Count: 3} }
	for name, c := range map[string]struct {
		slices []*resourceapi.ResourceSlice
		more   string
	}{
		"whole, shares and MIG devices": {poolsOf(n, timeSliced(n, 2, andWhole, slices)), ""},
		"and MPS shares":                {poolsOf(n, mpsLayout(n, mpsOf(3, 2), andWhole, shared, slices)), mpsClass},
		"and an added family":           {published(n, withNull(n)), "null.gpu.prism.dev"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScheduler(t, c.slices)
			s.classes.(classesByName)["null.gpu.prism.dev"] = string(null.Type)
			families := []string{"gpu.prism.dev", timesliceClass, "mig.gpu.prism.dev"}
			if c.more != "" {
				families = append(families, c.more)
			}
			for _, class := range families {
				var held []resourceapi.DeviceRequestAllocationResult
				for got := s.wouldAllocate(s.allocator(), request(class, 1)); got != nil && len(held) < 2; got = s.wouldAllocate(s.allocator(), request(class, 1)) {
					s.hold(got[0])
					held = append(held, got[0])
				}
				require.NotEmpty(t, held, class)
				for _, r := range held {
					for _, other := range families {
						if other != class {
							assert.Nil(t, s.wouldAllocate(s.allocator(), request(other, 1)), "%s beside %s", other, class)
						}
					}
					s.release(r)
				}
				for _, other := range families {
					assert.NotNil(t, s.wouldAllocate(s.allocator(), request(other, 1)), "%s after %s", other, class)
				}
			}
		})
	}
}
