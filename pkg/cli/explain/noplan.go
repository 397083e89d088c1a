package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// reasonsShown is the number of reasons in a sentence.
const reasonsShown = 3

// hopeless returns why there is no plan: why the smallest sets of pods did not help, or the pods on the nearest device that cannot move.
func (d *defragmentation) hopeless(ctx context.Context, nodes []*clusterview.Node) error {
	name := d.name()
	if len(d.failed) > 0 {
		return &NoPlan{Sentence: fmt.Sprintf("no plan for %s: %s", name, listed(d.failed))}
	}
	var nearest []string
	place := ""
	for _, node := range nodes {
		for _, p := range node.Pools {
			if len(p.Uses) == 0 {
				continue
			}
			q := d.question(p, nil)
			q.Released = func(*clusterview.Claim) bool { return true }
			found, err := d.allocate(ctx, q)
			if err != nil {
				return err
			}
			if found == nil {
				continue
			}
			result := &found[0].Devices.Results[0]
			device, _ := findDevice(p, result.Device)
			if reasons := d.blockers(p, result.Device); len(reasons) > 0 && (nearest == nil || len(reasons) < len(nearest)) {
				nearest, place = reasons, fmt.Sprintf("%s on node %s", useText(device, result), node.Name)
			}
		}
	}
	if nearest == nil {
		return &NoPlan{Sentence: fmt.Sprintf("no plan for %s: its claim fits on no node, even if all other claims were gone; "+
			"kubectl prism explain pod %s -n %s says why", name, d.pod.Name, d.pod.Namespace)}
	}
	return &NoPlan{Sentence: fmt.Sprintf("no plan for %s: nearest is %s, but %s", name, place, listed(nearest))}
}

// blockers returns why the claims that overlap a device are not released.
func (d *defragmentation) blockers(p *clusterview.Pool, device string) (reasons []string) {
	o := occupy(p, d.Features, func(*clusterview.Pod) bool { return true })
	overlap := o.overlapping(o.index(device), o.pods)
	for _, use := range p.Uses {
		if use.Result.Device != device && !slices.Contains(overlap, use.Result.Device) || releasesSoon(use.Claim) {
			continue
		}
		if why := d.stays(use.Claim); why != "" && !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	return reasons
}

// listed joins reasons, of many only the first.
func listed(reasons []string) string {
	if more := len(reasons) - reasonsShown; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(reasons[:reasonsShown], "; "), more)
	}
	return strings.Join(reasons, "; ")
}
