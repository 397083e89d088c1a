package nodeconfig

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Resolve returns what each of the node's GPUs is to be offered as: the entry whose select matches it says so, else the entry
// without a select. GPUs without an entry are not in the layout, which means that they are offered whole; a nil config gives
// a nil layout. A select may match nothing, as one config can be for many nodes.
//
// The config has passed Validate. The error is a *v1alpha1.Problems with all that these GPUs cannot give; the layout that comes with
// it is without those GPUs, which hurts no other.
func Resolve(config *v1alpha1.NodeConfig, gpus []gpu.GPU) (gpu.Layout, error) {
	if config == nil {
		return nil, nil
	}
	r := &resolution{config: config, layout: gpu.Layout{}}
	for i := range config.GPUs {
		r.served(i)
	}
	for i := range gpus {
		g := &gpus[i]
		r.refused = false
		entry, ok := r.entry(g)
		if !ok {
			continue
		}
		if offer := r.offer(entry, g); !r.refused {
			r.layout[g.UUID] = offer
		}
	}
	if len(r.problems) > 0 {
		return r.layout, &v1alpha1.Problems{Kind: v1alpha1.KindNodeConfig, List: r.problems}
	}
	return r.layout, nil
}

// resolution is one config on its way to a layout.
type resolution struct {
	config   *v1alpha1.NodeConfig
	layout   gpu.Layout
	problems []*v1alpha1.Problem
	// refused: something is wrong with the GPU that is being resolved.
	refused bool
}

// add notes a problem once, however many GPUs have it.
func (r *resolution) add(at, format string, args ...any) {
	r.refused = true
	problem := v1alpha1.Problem{Path: at, Text: fmt.Sprintf(format, args...)}
	if !slices.ContainsFunc(r.problems, func(known *v1alpha1.Problem) bool { return *known == problem }) {
		r.problems = append(r.problems, &problem)
	}
}

// served refuses what the API knows and this version does not do yet.
func (r *resolution) served(i int) {
	entry, at := &r.config.GPUs[i], fmt.Sprintf("gpus[%d]", i)
	for j, mode := range entry.Modes {
		if mode != v1alpha1.ModeWhole && mode != v1alpha1.ModeMIG {
			r.add(fmt.Sprintf("%s.modes[%d]", at, j), "%s is not served by this version; allowed: %s, %s", mode,
				v1alpha1.ModeWhole, v1alpha1.ModeMIG)
		}
	}
	if entry.MIG == nil {
		return
	}
	for _, profile := range slices.Sorted(maps.Keys(entry.MIG.Replicas)) {
		if entry.MIG.Replicas[profile] > 1 {
			r.add(fmt.Sprintf("%s.mig.replicas[%s]", at, profile), "this version gives a slice to one claim at a time; remove it")
		}
	}
}

// entry finds the entry for a GPU, false when there is none.
func (r *resolution) entry(g *gpu.GPU) (int, bool) {
	selecting, rest := -1, -1
	for i := range r.config.GPUs {
		switch sel := r.config.GPUs[i].Select; {
		case sel == nil:
			rest = i
		case !selects(sel, g):
		case selecting >= 0:
			r.add(fmt.Sprintf("gpus[%d].select", i), "selects GPU %d (%s, %s), as does gpus[%d]; a GPU has one entry: narrow one of them",
				g.Index, g.Product.Name, g.UUID, selecting)
		default:
			selecting = i
		}
	}
	if selecting >= 0 {
		return selecting, true
	}
	return rest, rest >= 0
}

// selects tells whether any list of the select names the GPU. Letters of UUIDs match in either case.
func selects(sel *v1alpha1.GPUSelect, g *gpu.GPU) bool {
	return slices.ContainsFunc(sel.Indices, func(index int32) bool { return int(index) == g.Index }) ||
		slices.ContainsFunc(sel.UUIDs, func(uuid string) bool { return strings.EqualFold(uuid, string(g.UUID)) }) ||
		slices.ContainsFunc(sel.Products, func(glob string) bool {
			ok, err := path.Match(glob, g.Product.Name)
			return ok && err == nil
		})
}

// offer reads entry i for a GPU.
func (r *resolution) offer(i int, g *gpu.GPU) gpu.Offer {
	entry := &r.config.GPUs[i]
	offer := gpu.Offer{Whole: len(entry.Modes) == 0 || slices.Contains(entry.Modes, v1alpha1.ModeWhole)}
	if j := slices.Index(entry.Modes, v1alpha1.ModeMIG); j >= 0 {
		offer.MIG = r.profiles(i, fmt.Sprintf("gpus[%d].modes[%d]", i, j), g)
	}
	return offer
}

// profiles lists the MIG profiles that entry i wants of a GPU, in the GPU's order.
func (r *resolution) profiles(i int, modeAt string, g *gpu.GPU) []string {
	switch {
	case !g.Product.MIGCapable:
		r.add(modeAt, "%s has no MIG; remove mode %s, or give such GPUs an entry of their own without it",
			g.Product.Name, v1alpha1.ModeMIG)
		return nil
	case g.MIG == nil || len(g.MIG.Profiles) == 0:
		r.add(modeAt, "the driver does not tell the MIG profiles of %s; update the NVIDIA driver or remove mode %s",
			g.Product.Name, v1alpha1.ModeMIG)
		return nil
	}
	names := g.MIG.ProfileNames()
	mig := r.config.GPUs[i].MIG
	if mig == nil || mig.Profiles == nil {
		return names
	}
	for j, wanted := range mig.Profiles {
		if !slices.Contains(names, wanted) {
			r.add(fmt.Sprintf("gpus[%d].mig.profiles[%d]", i, j), "%s has no profile %s; it has: %s", g.Product.Name, wanted,
				strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(mig.Profiles, name) })
}
