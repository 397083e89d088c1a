package nodeconfig

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Absent lists, in one line, the hardware that a config names and that the node lacks and may lack, together with the hardware that the
// node has instead; empty if there is none. It is no error: one config can be for many nodes. If mustMatch requires the hardware, Resolve
// returns an error; if mustMatch is false, it is in neither.
func Absent(config *v1alpha1.NodeConfig, node *gpu.Node) string {
	if config == nil {
		return ""
	}
	if r := resolve(config, node); len(r.absent) > 0 {
		return (&v1alpha1.Problems{Kind: kindOf(config), List: r.absent}).Error()
	}
	return ""
}

// correct is the advice about a problem.
const correct = "correct it, or remove it"

// importance decides how serious it is that the node lacks hardware that an entry names.
type importance int

const (
	// ignored: it is meant, and not mentioned.
	ignored importance = iota
	// mentioned: it may be meant. It is in Absent.
	mentioned
	// required: it is a problem.
	required
)

// importance reads mustMatch of entry i. Without it a UUID is required, because it belongs to one node; but a file of the device plugin
// knows no mustMatch, and is for many nodes.
func (r *resolution) importance(i int, uuid bool) importance {
	entry := &r.config.GPUs[i]
	switch sel := entry.Select; {
	case sel != nil && sel.MustMatch != nil && *sel.MustMatch:
		return required
	case sel != nil && sel.MustMatch != nil:
		return ignored
	case uuid && len(entry.Origins) == 0:
		return required
	default:
		return mentioned
	}
}

// lacks records that the node lacks the hardware named at a path. The advice is for a problem.
func (r *resolution) lacks(how importance, at, text, advice string) {
	switch how {
	case required:
		r.note(at, "%s; %s", text, advice)
	case mentioned:
		r.absent = once(r.absent, v1alpha1.Problem{Path: at, Text: text})
	case ignored:
	}
}

// inventory lists the values that selects can name. A list is nil while the node has a GPU whose value is not known: another value is then
// not absent.
type inventory struct {
	gpus                     []gpu.GPU
	indices, uuids, products []string
}

func inventoryOf(node *gpu.Node) *inventory {
	has := &inventory{gpus: slices.Clone(node.GPUs)}
	for _, fault := range node.Faults {
		has.gpus = append(has.gpus, gpu.GPU{UUID: fault.UUID, Index: fault.Index})
	}
	if len(has.gpus) == 0 {
		return has // nothing is known
	}
	for i := range has.gpus {
		g := &has.gpus[i]
		has.indices = append(has.indices, strconv.Itoa(g.Index))
		has.uuids = append(has.uuids, string(g.UUID))
		has.products = append(has.products, g.Product.Name)
	}
	for _, list := range []*[]string{&has.uuids, &has.products} {
		if slices.Contains(*list, "") {
			*list = nil
		}
	}
	has.products = slices.Compact(slices.Sorted(slices.Values(has.products)))
	return has
}

// matched reports the hardware that the select of entry i names and the node lacks.
func (r *resolution) matched(i int, has *inventory) {
	sel := r.config.GPUs[i].Select
	if sel == nil {
		return
	}
	var indices []string
	for _, index := range sel.Indices {
		indices = append(indices, strconv.Itoa(int(index)))
	}
	missing := func(list []string, there []string, matches func(one string, g *gpu.GPU) bool) string {
		if there == nil {
			return ""
		}
		return few(slices.DeleteFunc(slices.Clone(list), func(one string) bool {
			return slices.ContainsFunc(has.gpus, func(g gpu.GPU) bool { return matches(one, &g) })
		}))
	}
	advice := correct
	if sel.MustMatch == nil {
		advice += "; if this is for several nodes, set mustMatch of the select to false"
	}
	for _, kind := range []struct {
		field, noun, list string
		there             []string
		uuid              bool
	}{
		{"select.uuids", "with UUID", missing(sel.UUIDs, has.uuids, hasUUID), has.uuids, true},
		{"select.indices", "at index", missing(indices, has.indices, hasIndex), has.indices, false},
		{"select.products", "with product name", missing(sel.Products, has.products, hasProduct), has.products, false},
	} {
		if kind.list != "" {
			r.lacks(r.importance(i, kind.uuid), r.at(i, kind.field, ""), fmt.Sprintf("no matching device %s: %s; this node has: %s", kind.noun,
				kind.list, few(kind.there)), advice)
		}
	}
}

// few joins a list that may be as long as a configuration.
func few(list []string) string {
	const most = 8
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// known reports profiles in replicas that no GPU has that they are for. Several entries may come from one place.
func (r *resolution) known(entries [][]*gpu.GPU) {
	missing, had := map[string]string{}, map[string]bool{}
	how, has := map[string]importance{}, map[string][]string{}
	for i, gpus := range entries {
		for _, profile := range shared(r.config.GPUs[i].MIG) {
			if profile == v1alpha1.AllProfiles || len(gpus) == 0 {
				continue
			}
			at := r.at(i, fmt.Sprintf("mig.replicas[%s]", profile), profile)
			had[at] = had[at] || slices.ContainsFunc(gpus, func(g *gpu.GPU) bool { return hasProfile(g, profile) })
			missing[at], how[at] = profile, max(how[at], r.importance(i, false))
			for _, g := range gpus {
				has[at] = append(has[at], profilesOf(g)...)
			}
		}
	}
	for _, at := range slices.Sorted(maps.Keys(missing)) {
		if had[at] {
			continue
		}
		have := cmp.Or(few(slices.Compact(slices.Sorted(slices.Values(has[at])))), "no MIG profile")
		r.lacks(how[at], at, fmt.Sprintf("no GPU that this is for has profile %s; they have %s", missing[at], have), correct)
	}
}

func hasProfile(g *gpu.GPU, profile string) bool { return slices.Contains(profilesOf(g), profile) }

func profilesOf(g *gpu.GPU) []string {
	if g.MIG == nil {
		return nil
	}
	return g.MIG.ProfileNames()
}

// selects reports whether any list of the select names the GPU.
func selects(sel *v1alpha1.GPUSelect, g *gpu.GPU) bool {
	return slices.ContainsFunc(sel.Indices, func(index int32) bool { return hasIndex(strconv.Itoa(int(index)), g) }) ||
		slices.ContainsFunc(sel.UUIDs, func(uuid string) bool { return hasUUID(uuid, g) }) ||
		slices.ContainsFunc(sel.Products, func(glob string) bool { return hasProduct(glob, g) })
}

func hasIndex(index string, g *gpu.GPU) bool { return index == strconv.Itoa(g.Index) }

func hasUUID(uuid string, g *gpu.GPU) bool { return strings.EqualFold(uuid, string(g.UUID)) }

var (
	// gfdOmits are the characters that GPU feature discovery leaves out of the label nvidia.com/gpu.product (internal/lm/resource.go of
	// NVIDIA/k8s-device-plugin).
	gfdOmits = regexp.MustCompile(`[^A-Za-z0-9_. -]`)
	// gfdSuffix is its suffix for GPUs that are shared or divided, in lower case.
	gfdSuffix = regexp.MustCompile(`(-mig-[0-9]+g\.[0-9]+gb[a-z.+-]*?)?(-shared)?$`)
)

// hasProduct matches a glob with the product name as NVML spells it, and as the label of GPU feature discovery does, in either case.
func hasProduct(glob string, g *gpu.GPU) bool {
	label := strings.Join(strings.Fields(gfdOmits.ReplaceAllString(g.Product.Name, "")), "-")
	glob = gfdSuffix.ReplaceAllString(strings.ToLower(glob), "")
	return slices.ContainsFunc([]string{g.Product.Name, label}, func(name string) bool {
		ok, err := path.Match(glob, strings.ToLower(name))
		return ok && err == nil && name != ""
	})
}
