package nodeconfig

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Resolve returns the modes in which each of the node's GPUs is to be advertised: from the entry whose select matches it, else from the
// entry without a select. GPUs without an entry are not in the layout, which means that they are advertised whole; a nil config gives a nil
// layout. A select may match nothing, because one config can be for many nodes: mustMatch decides whether that is an error, and Absent
// lists it otherwise. The faults of the node are its GPUs that do not answer.
//
// The config has passed Validate. The error is a *v1alpha1.Problems with all that these GPUs or this version do not support. The
// GPUs of those problems are refused: they are not in the layout either, and affect no other.
func Resolve(config *v1alpha1.NodeConfig, node *gpu.Node) (layout gpu.Layout, refused []gpu.UUID, err error) {
	if config == nil {
		return nil, nil, nil
	}
	r := resolve(config, node)
	if len(r.problems) > 0 {
		err = &v1alpha1.Problems{Kind: kindOf(config), List: r.problems}
	}
	return r.layout, r.refusedGPUs, err
}

func resolve(config *v1alpha1.NodeConfig, node *gpu.Node) *resolution {
	r := &resolution{config: config, driver: node.Driver, layout: gpu.Layout{}}
	has := inventoryOf(node)
	wrong := make([]bool, len(config.GPUs))
	for i := range config.GPUs {
		r.exclusive(i)
		r.matched(i, has)
		wrong[i] = r.outOfRange(i)
	}
	entries := make([][]*gpu.GPU, len(config.GPUs))
	for i := range node.GPUs {
		g := &node.GPUs[i]
		r.refused = false
		entry, ok := r.entry(g)
		if !ok {
			continue
		}
		r.refused = r.refused || wrong[entry]
		entries[entry] = append(entries[entry], g)
		modes := r.modes(entry, g)
		if r.refused {
			r.refusedGPUs = append(r.refusedGPUs, g.UUID)
			continue
		}
		r.layout[g.UUID] = modes
	}
	r.known(entries)
	return r
}

// resolution is one config on its way to a layout.
type resolution struct {
	config   *v1alpha1.NodeConfig
	driver   gpu.Driver
	layout   gpu.Layout
	problems []*v1alpha1.Problem
	// absent lists hardware that the config names, the node lacks, and may lack.
	absent []*v1alpha1.Problem
	// refusedGPUs are the GPUs with a problem.
	refusedGPUs []gpu.UUID
	// refused: something is wrong with the GPU that is being resolved.
	refused bool
}

// kindOf is the users' name for the text that the config was made of.
func kindOf(config *v1alpha1.NodeConfig) string {
	if slices.ContainsFunc(config.GPUs, func(e v1alpha1.GPUEntry) bool { return len(e.Origins) > 0 }) {
		return kindDevicePlugin
	}
	return v1alpha1.KindNodeConfig
}

// at is the path of a field of entry i, empty for the entry itself. For a translated entry it is the path of the original. about selects
// the part about a mode or a MIG profile; empty means all parts.
func (r *resolution) at(i int, field, about string) string {
	switch origins := r.config.GPUs[i].Origins; {
	case about != "" && origins[about] != "":
		return origins[about]
	case len(origins) > 0:
		return strings.Join(slices.Sorted(maps.Values(origins)), ", ")
	case field == "":
		return fmt.Sprintf("gpus[%d]", i)
	default:
		return fmt.Sprintf("gpus[%d].%s", i, field)
	}
}

// add notes a problem of the GPU that is being resolved, which then is not in the layout.
func (r *resolution) add(at, format string, args ...any) {
	r.refused = true
	r.note(at, format, args...)
}

// note notes a problem once, even if several GPUs have it.
func (r *resolution) note(at, format string, args ...any) {
	r.problems = once(r.problems, v1alpha1.Problem{Path: at, Text: fmt.Sprintf(format, args...)})
}

func once(list []*v1alpha1.Problem, problem v1alpha1.Problem) []*v1alpha1.Problem {
	if slices.ContainsFunc(list, func(known *v1alpha1.Problem) bool { return *known == problem }) {
		return list
	}
	return append(list, &problem)
}

// exclusive refuses replicas of MIG devices that are made for a claim.
func (r *resolution) exclusive(i int) {
	entry := &r.config.GPUs[i]
	if !slices.Contains(entry.Modes, v1alpha1.ModeMIG) {
		return
	}
	for _, profile := range shared(entry.MIG) {
		r.note(r.at(i, fmt.Sprintf("mig.replicas[%s]", profile), profile), "a MIG device that is made for a claim is exclusive to it, and replicas "+
			"are for pre-created MIG devices; remove it, or mode %s", v1alpha1.ModeMIG)
	}
}

// outOfRange reports replicas of entry i that nothing supports; the entry's GPUs are then refused.
func (r *resolution) outOfRange(i int) bool {
	entry, wrong := &r.config.GPUs[i], false
	translated := len(entry.Origins) > 0
	check := func(field, about string, n *int32, low, high int32) {
		if n == nil || *n >= low && *n <= high {
			return
		}
		wrong = true
		switch at := r.at(i, field, about); {
		case translated && high == math.MaxInt32:
			r.note(at+".replicas", "number of replicas must be >= %d, not %d", low, *n)
		case translated:
			r.note(at+".replicas", "%d is out of range; allowed: %d to %d", *n, low, high)
		default:
			r.note(at, "%d is out of range; allowed: %d to %d", *n, low, high)
		}
	}
	for _, m := range entry.SharedModes() {
		check(m.Key+".replicas", string(m.Mode), m.Replicas, m.MinReplicas, m.MaxReplicas)
	}
	if m := entry.MIG; m != nil {
		least := int32(v1alpha1.MinMIGReplicas)
		if translated {
			least = v1alpha1.MinTimeSliceReplicas // a translated file sets no number for a MIG device that is not shared
		}
		for _, profile := range slices.Sorted(maps.Keys(m.Replicas)) {
			check(fmt.Sprintf("mig.replicas[%s]", profile), profile, new(m.Replicas[profile]), least, math.MaxInt32)
		}
	}
	return wrong
}

// shared lists the profiles whose MIG devices are for several claims.
func shared(mig *v1alpha1.NodeMIG) []string {
	if mig == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(mig.Replicas)), func(profile string) bool { return mig.Replicas[profile] < 2 })
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
			advice := "a GPU has one entry: narrow one of them"
			if of := &r.config.GPUs[i]; len(of.Origins) > 0 {
				advice = "a GPU is shared in one way: remove it from the devices of one of them"
				for _, m := range of.SharedModes() {
					if slices.ContainsFunc(r.config.GPUs[selecting].SharedModes(), func(other v1alpha1.SharedMode) bool { return other.Mode == m.Mode }) {
						advice += anySize(m.Mode)
					}
				}
			}
			r.add(r.at(i, "select", ""), "selects GPU %d (%s, %s), as does %s; %s", g.Index, g.Product.Name, g.UUID, r.at(selecting, "", ""), advice)
		default:
			selecting = i
		}
	}
	if selecting >= 0 {
		return selecting, true
	}
	return rest, rest >= 0
}

// modes reads entry i for a GPU.
func (r *resolution) modes(i int, g *gpu.GPU) gpu.Modes {
	entry := &r.config.GPUs[i]
	modes := gpu.Modes{Whole: len(entry.Modes) == 0 || slices.Contains(entry.Modes, v1alpha1.ModeWhole)}
	modes.MemoryBytes = uint64(bytes(entry.Memory, 0)) //nolint:gosec // Validate has seen that it is not negative
	g = modes.Sized(g)
	if j := slices.Index(entry.Modes, v1alpha1.ModeMIG); j >= 0 {
		modes.MIG = r.profiles(i, r.at(i, fmt.Sprintf("modes[%d]", j), ""), g)
	}
	r.sharedModes(i, g, &modes)
	r.share(entry, g, &modes)
	switch {
	case modes.TimeSlice != nil || modes.MIGReplicas != nil:
		modes.OneShare = entry.FailRequestsGreaterThanOne == nil || *entry.FailRequestsGreaterThanOne
	case modes.SharesGPU():
		modes.OneShare = true // a process uses one share
	}
	return modes
}

// allMedia ends the names of profiles that own every media engine of a GPU. They can only be beside profiles without any ("-me"), which
// the counters do not say.
const allMedia = "+me.all"

// profiles lists the MIG profiles of entry i for a GPU, in the GPU's order. One with all media engines it must name.
func (r *resolution) profiles(i int, modeAt string, g *gpu.GPU) []string {
	switch {
	case !g.Product.MIGCapable:
		r.add(modeAt, "%s has no MIG; remove mode %s, or give such GPUs an entry of their own without it",
			g.Product.Name, v1alpha1.ModeMIG)
		return nil
	case g.MIG == nil || len(g.MIG.Profiles) == 0:
		r.add(modeAt, "the driver does not report the MIG profiles of %s; update the NVIDIA driver or remove mode %s",
			g.Product.Name, v1alpha1.ModeMIG)
		return nil
	}
	names := g.MIG.ProfileNames()
	mig := r.config.GPUs[i].MIG
	if mig == nil || mig.Profiles == nil {
		return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, allMedia) })
	}
	has := func(profile string) bool { return slices.Contains(names, profile) }
	// Without any of them a GPU in no other mode would be without a device.
	mayLack := r.importance(i, false) == ignored && (slices.ContainsFunc(mig.Profiles, has) || len(r.config.GPUs[i].Modes) > 1)
	for j, wanted := range mig.Profiles {
		if !has(wanted) && !mayLack {
			r.add(r.at(i, fmt.Sprintf("mig.profiles[%d]", j), ""), "%s has no profile %s; it has: %s", g.Product.Name, wanted,
				strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(mig.Profiles, name) })
}
