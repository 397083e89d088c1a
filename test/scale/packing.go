package scale

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Packing is the number of jobs with MIG devices that were placed on one GPU, with random starts and ends, before the first job had to wait:
// the mean of packingLoads loads, which are the same for every layout.
type Packing struct {
	Layout string
	// Published is the result with the devices in the published order, ByName in the order of names.
	Published, ByName float64
}

const packingLoads = 200

// packingProfiles are the profiles that jobs request, with equal probability.
var packingProfiles = []string{"1g.10gb", "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb"}

// Pack measures each layout with MIG devices.
func Pack(ctx context.Context, layouts []Layout) ([]Packing, error) {
	n, err := Simulated(ctx)
	if err != nil {
		return nil, err
	}
	one := *n
	one.GPUs = n.GPUs[:1]
	var all []Packing
	for i := range layouts {
		l := &layouts[i]
		if l.Requests[RequestProfile] == nil {
			continue
		}
		p := Packing{Layout: l.Name}
		if p.Published, err = placed(ctx, l, &one, false); err != nil {
			return nil, err
		}
		if p.ByName, err = placed(ctx, l, &one, true); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// placed returns the mean number of jobs that get a device before one does not.
func placed(ctx context.Context, l *Layout, one *gpu.Node, byName bool) (float64, error) {
	s := newNode(l, "node", one)
	if byName {
		for _, slice := range s.slices {
			slices.SortFunc(slice.Spec.Devices, func(a, b resourceapi.Device) int { return strings.Compare(a.Name, b.Name) })
		}
	}
	all := 0
	for seed := range uint64(packingLoads) {
		n, err := s.untilFull(ctx, rand.New(rand.NewPCG(seed, 4)))
		if err != nil {
			return 0, err
		}
		all += n
	}
	return float64(all) / packingLoads, nil
}

// untilFull counts the placed jobs of one load. With probability 1/3 a job ends before the next one starts.
func (s *node) untilFull(ctx context.Context, random *rand.Rand) (int, error) {
	s.taken.Clear()
	for placed := 0; ; placed++ {
		if running := s.taken.UnsortedList(); len(running) > 0 && random.IntN(3) == 0 {
			slices.SortFunc(running, func(a, b structured.DeviceID) int { return cmp.Compare(a.String(), b.String()) })
			s.taken.Delete(running[random.IntN(len(running))])
		}
		profile := packingProfiles[random.IntN(len(packingProfiles))]
		found, _, err := s.allocate(ctx, request("mig."+s.layout.Driver, fmt.Sprintf("device.attributes[%q].profile == %q", s.layout.Driver, profile)))
		if err != nil || len(found) == 0 {
			return placed, err
		}
		s.take(found)
	}
}
