package publish_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
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
