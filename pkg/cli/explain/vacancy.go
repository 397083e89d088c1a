package explain

import (
	"context"
	"encoding/json"
	"iter"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// vacancy finds nodes where equal claims of pods fit now. Nodes are asked only as far as they are needed.
type vacancy struct {
	d      *defragmentation
	claims []*resourceapi.ResourceClaim
	// one is set for one request for one device, which is asked pool by pool.
	one   *wish
	reads clusterview.Reads
	// open are the nodes where the claims fit; asked counts the nodes that were asked.
	open  []*clusterview.Node
	asked int
	// known are the answers for pools or nodes by their keys.
	known map[string]bool
	err   error
}

// vacancyFor returns the vacancy for the claims of a pod.
func (d *defragmentation) vacancyFor(pod *clusterview.Pod) *vacancy {
	spec, found := d.specs[pod]
	if !found {
		for _, claim := range pod.Claims {
			// Marshal sorts the keys of maps. A part of an API object cannot fail to be encoded.
			text, _ := json.Marshal(&claim.Spec)
			spec += string(text)
		}
		d.specs[pod] = spec
	}
	v := d.vacancies[spec]
	if v == nil {
		v = &vacancy{d: d, known: map[string]bool{}}
		for _, claim := range pod.Claims {
			v.claims = append(v.claims, again(claim.ResourceClaim))
		}
		a := d.asked(v.claims)
		v.one, v.reads = a.one, a.reads
		d.vacancies[spec] = v
	}
	return v
}

// nodes yields the nodes where the claims fit now. It ends early if err is set.
func (v *vacancy) nodes(ctx context.Context) iter.Seq[*clusterview.Node] {
	return func(yield func(*clusterview.Node) bool) {
		for i := 0; ; i++ {
			for i == len(v.open) {
				if v.asked == len(v.d.Cluster.Nodes) {
					return
				}
				node := v.d.Cluster.Nodes[v.asked]
				fits, err := v.fits(ctx, node)
				if err != nil {
					v.err = err
					return
				}
				v.asked++
				if fits {
					v.open = append(v.open, node)
				}
			}
			if !yield(v.open[i]) {
				return
			}
		}
	}
}

// fits reports whether the claims fit on a node. Equal pools, or equal nodes, are asked once.
func (v *vacancy) fits(ctx context.Context, node *clusterview.Node) (bool, error) {
	if len(node.Pools) == 0 {
		return false, nil
	}
	if v.one == nil || len(v.d.Cluster.Shared) > 0 {
		return v.ask(ctx, node.Key(v.reads), Question{Node: node})
	}
	for _, p := range node.Pools {
		if fits, err := v.ask(ctx, v.d.keys.of(p, v.reads), Question{Node: node, Pools: []*clusterview.Pool{p}}); fits || err != nil {
			return fits, err
		}
	}
	return false, nil
}

func (v *vacancy) ask(ctx context.Context, key string, q Question) (bool, error) {
	if fits, found := v.known[key]; found {
		return fits, nil
	}
	q.Claims = v.claims
	found, err := v.d.allocate(ctx, q)
	v.known[key] = found != nil
	return found != nil, err
}
