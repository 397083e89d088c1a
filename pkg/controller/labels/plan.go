package labels

import (
	"cmp"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const bytesPerMiB = 1 << 20

// Plan returns the labels of a node from all its ResourceSlices, without labels if these have no GPU. It reports false, without labels, while
// a pool is incomplete: the labels then stay.
func Plan(slices []*Facts, o Options) (labels map[string]string, complete bool) {
	current, complete := newest(slices)
	if !complete {
		return nil, false
	}
	gpus := gpusOf(current)
	if len(gpus) == 0 {
		return nil, true
	}
	labels = map[string]string{keyCount: strconv.Itoa(len(gpus))}
	if o.Present {
		labels[keyPresent] = "true"
	}
	addVersions(labels, gpus)
	one, equal := common(gpus)
	if !equal {
		return labels, true
	}
	addModel(labels, one)
	if o.DevicePlugin {
		addSharing(labels, gpus)
	}
	return labels, true
}

// newest returns the ResourceSlices of the newest generation of each pool, and whether all of them are there.
func newest(slices []*Facts) (current []*Facts, complete bool) {
	generation, found := map[string]int64{}, map[string]int64{}
	for _, slice := range slices {
		generation[slice.Pool] = max(generation[slice.Pool], slice.Generation)
	}
	for _, slice := range slices {
		if slice.Generation == generation[slice.Pool] {
			current = append(current, slice)
			found[slice.Pool]++
		}
	}
	for _, slice := range current {
		if found[slice.Pool] != slice.Count {
			return nil, false
		}
	}
	return current, true
}

// gpusOf joins the facts of each GPU in different ResourceSlices.
func gpusOf(slices []*Facts) []*GPUFacts {
	var gpus []*GPUFacts
	byUUID, memory := map[string]*GPUFacts{}, map[string]int64{}
	for _, slice := range slices {
		maps.Copy(memory, slice.Memory)
		for _, facts := range slice.GPUs {
			known, found := byUUID[facts.UUID]
			if !found {
				known = &GPUFacts{UUID: facts.UUID}
				byUUID[facts.UUID] = known
				gpus = append(gpus, known)
			}
			known.merge(facts)
		}
	}
	for _, g := range gpus {
		g.Memory = cmp.Or(g.Memory, memory[g.Counters])
	}
	return gpus
}

// common returns the facts of the GPUs if they are equal. A value that is unknown for some GPUs, as the memory of GPUs that have only MIG
// devices, is the value of the others.
func common(gpus []*GPUFacts) (GPUFacts, bool) {
	one := GPUFacts{}
	for _, g := range gpus {
		one.merge(*g)
	}
	for _, g := range gpus {
		if cmp.Or(g.Product, one.Product) != one.Product || cmp.Or(g.Compute, one.Compute) != one.Compute || cmp.Or(g.Memory, one.Memory) != one.Memory {
			return GPUFacts{}, false
		}
	}
	return one, true
}

// addVersions adds the versions of the driver and of CUDA if all GPUs have the same. Both are properties of the node: they differ only while
// the driver is replaced.
func addVersions(labels map[string]string, gpus []*GPUFacts) {
	driver, cuda := gpus[0].Driver, gpus[0].CUDA
	for _, g := range gpus {
		if g.Driver != driver {
			driver = ""
		}
		if g.CUDA != cuda {
			cuda = ""
		}
	}
	if major, minor, ok := split(driver); ok {
		labels[keyDriverMajor], labels[keyDriverMinor] = major, minor
	}
	if major, minor, ok := split(cuda); ok {
		labels[keyRuntimeMajor], labels[keyRuntimeMinor], labels[keyRuntimeFull] = major, minor, major+"."+minor
	}
}

// split returns the first two numbers of a version.
func split(version string) (major, minor string, ok bool) {
	major, rest, ok := strings.Cut(version, ".")
	minor, _, _ = strings.Cut(rest, ".")
	return major, minor, ok
}

// addModel adds the labels about equal GPUs, as far as the values are known.
func addModel(labels map[string]string, g GPUFacts) {
	if product := value(g.Product, validation.LabelValueMaxLength); product != "" {
		labels[keyProduct] = product
	}
	if g.Memory >= bytesPerMiB {
		labels[keyMemory] = strconv.FormatInt(g.Memory/bytesPerMiB, 10)
	}
	if major, minor, ok := split(g.Compute); ok {
		labels[keyComputeMajor], labels[keyComputeMinor], labels[keyFamily] = major, minor, family(major, minor)
	}
	if capable, known := migCapable(g); known {
		labels[keyMIGCapable] = strconv.FormatBool(capable)
	}
}

// value makes a label value of at most limit characters: "-" replaces spaces and all characters that are not allowed.
func value(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if alphanumeric(r) || strings.ContainsRune("-_.", r) {
			return r
		}
		return '-'
	}, s)
	return strings.TrimFunc(s[:min(len(s), limit)], func(r rune) bool { return !alphanumeric(r) })
}

func alphanumeric(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
}

// families are the names of architectures by the major version of the compute capability, for all minor versions below the key's limit.
var families = map[string][]struct {
	below int
	name  string
}{
	"3": {{100, "kepler"}}, "5": {{100, "maxwell"}}, "6": {{100, "pascal"}}, "7": {{5, "volta"}, {100, "turing"}}, "8": {{9, "ampere"}, {100, "ada-lovelace"}},
	"9": {{100, "hopper"}}, "10": {{100, "blackwell"}}, "12": {{100, "blackwell"}}, "13": {{100, "rubin"}},
}

// family is the architecture of a compute capability, "undefined" for an unknown one.
func family(major, minor string) string {
	n, err := strconv.Atoi(minor)
	for _, f := range families[major] {
		if err == nil && n < f.below {
			return f.name
		}
	}
	return "undefined"
}

// migCapable reports whether the GPU supports MIG, if that is known: it has MIG devices, or follows from model and compute capability.
func migCapable(g GPUFacts) (capable, known bool) {
	for _, f := range g.Families {
		if f.Type == gpu.TypeMIG {
			return true, true
		}
	}
	major, minor, ok := split(g.Compute)
	switch {
	case !ok:
		return false, false
	case major == "8":
		return minor == "0", true
	case major == "9", major == "10":
		return true, true
	case major == "12": // of these, the boards for servers and workstations from the 4500 on
		for _, model := range []string{"4500", "5000", "6000"} {
			if strings.Contains(g.Product, "RTX PRO "+model) {
				return true, true
			}
		}
		return false, true
	case len(major) == 1:
		return false, true
	default:
		return false, false
	}
}

// addSharing describes nvidia.com/gpu as a resource of the device plugin, if all GPUs of the node are shared alike. GPUs with MIG devices are
// described as under the strategy "mixed", in which the other labels are about whole GPUs.
func addSharing(labels map[string]string, gpus []*GPUFacts) {
	first, known := sharing(gpus[0])
	for _, g := range gpus {
		for _, f := range g.Families {
			if f.Type == gpu.TypeMIG {
				labels[keyStrategy] = "mixed"
			}
		}
		if shares, ok := sharing(g); !ok || shares != first {
			known = false
		}
	}
	if !known {
		return
	}
	labels[keyReplicas], labels[keySharing] = strconv.FormatInt(first.replicas, 10), first.strategy
	if product := labels[keyProduct]; product != "" && first.replicas > 1 && !first.renamed {
		const suffix = "-SHARED"
		labels[keyProduct] = value(product, validation.LabelValueMaxLength-len(suffix)) + suffix
	}
}

// shares say how pods share a GPU that they request as nvidia.com/gpu.
type shares struct {
	replicas int64
	strategy string
	renamed  bool
}

// sharing returns false for a GPU without whole devices and with several other kinds, which the labels cannot express.
func sharing(g *GPUFacts) (shares, bool) {
	for _, f := range g.Families {
		if f.Type == gpu.TypeGPU {
			return shares{replicas: 1, strategy: "none"}, true
		}
	}
	if len(g.Families) != 1 {
		return shares{}, false
	}
	f := g.Families[0]
	switch f.Type {
	case gpu.TypeMIG:
		return shares{replicas: 0, strategy: "none"}, true
	case gpu.TypeTimeSlice:
		return shares{f.Replicas, "time-slicing", f.Renamed}, true
	default: // the names of other strategies are equal to their types
		return shares{f.Replicas, string(f.Type), f.Renamed}, true
	}
}
