package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Packing is how many slices a free GPU has given to jobs that come and go when the first job must wait: means of packingLoads loads,
// which are the same for both.
type Packing struct {
	// Published is with the devices in the order in which the driver publishes them, ByName in that of their names.
	Published, ByName float64
}

// packingLoads is how many loads are tried.
const packingLoads = 200

// packingProfiles are what the jobs of a load ask for, each as often.
var packingProfiles = []string{"1g.10gb", "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb"}

// MeasurePacking tries the loads on one GPU of a simulated node; classes are those of the cluster.
func MeasurePacking(ctx context.Context, driver string, classes []resourceapi.DeviceClass) (p Packing, err error) {
	node, err := simulated(ctx)
	if err != nil {
		return p, err
	}
	one := *node
	one.GPUs = node.GPUs[:1]
	layout := gpu.Layout{one.GPUs[0].UUID: {Whole: true, MIG: one.GPUs[0].MIG.ProfileNames()}}
	published, byName := newScheduler(driver, classes, &one, layout), newScheduler(driver, classes, &one, layout)
	for _, slice := range byName.slices {
		slices.SortFunc(slice.Spec.Devices, func(a, b resourceapi.Device) int { return strings.Compare(a.Name, b.Name) })
	}
	if p.Published, err = published.placed(ctx); err != nil {
		return p, err
	}
	p.ByName, err = byName.placed(ctx)
	return p, err
}

// placed is the mean of how many jobs get a slice before one does not.
func (s *scheduler) placed(ctx context.Context) (float64, error) {
	all := 0
	for seed := range uint64(packingLoads) {
		n, err := s.untilRefusal(ctx, rand.New(rand.NewPCG(seed, 4)))
		if err != nil {
			return 0, err
		}
		all += n
	}
	return float64(all) / packingLoads, nil
}

// untilRefusal counts the jobs of one load. Every third time, on average, a job ends before the next comes.
func (s *scheduler) untilRefusal(ctx context.Context, random *rand.Rand) (int, error) {
	taken := sets.New[structured.DeviceID]()
	for placed := 0; ; placed++ {
		if running := taken.UnsortedList(); len(running) > 0 && random.IntN(3) == 0 {
			slices.SortFunc(running, func(a, b structured.DeviceID) int { return cmp.Compare(a.String(), b.String()) })
			taken.Delete(running[random.IntN(len(running))])
		}
		results, _, err := s.allocate(ctx, s.slice(packingProfiles[random.IntN(len(packingProfiles))]), taken)
		if err != nil || len(results) == 0 {
			return placed, err
		}
		taken.Insert(structured.MakeDeviceID(results[0].Driver, results[0].Pool, results[0].Device))
	}
}

// packing tells how well the order of the devices keeps room.
func (r *Report) packing(b *strings.Builder) {
	p := r.MIG.Scheduling.Packing
	fmt.Fprintf(b, "\n| jobs with a slice of a free GPU when the first one must wait, mean of %d random loads | as published | by name |\n|---|--:|--:|\n",
		packingLoads)
	fmt.Fprintf(b, "| jobs placed | %.2f | %.2f |\n", p.Published, p.ByName)
}
