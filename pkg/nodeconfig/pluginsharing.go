package nodeconfig

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// cut is one resource of the file: which GPUs it shares, and how.
type cut struct {
	// at is the resource's path.
	at string
	// family is what a GPU may have once: a mode, or the profile of MIG slices.
	family string
	// on are the GPUs.
	on chosen
	// into writes the sharing into the entry of such GPUs.
	into func(*v1alpha1.GPUEntry)
}

const noResources = "no resources specified; name at least one, or remove the section"

// timeSlicing reads the section of time-sliced replicas.
func (t *translation) timeSlicing(s *pluginTimeSlicing) {
	if s == nil {
		return
	}
	const section = "sharing.timeSlicing"
	if len(s.Resources) == 0 {
		t.refuse(section+".resources", noResources)
	}
	// Their default is the other one.
	fail := s.FailRequestsGreaterThanOne != nil && *s.FailRequestsGreaterThanOne
	for i := range s.Resources {
		r, at := &s.Resources[i], fmt.Sprintf("%s.resources[%d]", section, i)
		name, ok := t.shared(at, r.Name, r.Rename, s.RenameByDefault)
		on, found := t.devices(at+".devices", r.Devices, name.profile)
		if !t.replicas(at, r.Replicas) || !ok || !found {
			continue
		}
		c := cut{at: at, family: string(v1alpha1.ModeTimeSlice), on: on}
		if name.profile != "" {
			c.family = name.profile
			c.into = func(e *v1alpha1.GPUEntry) { shareSlices(e, name, *r.Replicas, fail) }
			t.slicesHaveNames(at)
		} else {
			c.into = func(e *v1alpha1.GPUEntry) {
				e.Modes = append(e.Modes, v1alpha1.ModeTimeSlice)
				e.TimeSlice = &v1alpha1.NodeTimeSlice{Replicas: r.Replicas, ShareName: name.share, ResourceName: &name.resource}
				e.FailRequestsGreaterThanOne = &fail
				t.shareWhereGPUsAreSlices(e, at, name, *r.Replicas)
			}
		}
		t.cuts = append(t.cuts, c)
	}
}

// shareSlices gives each slice of a profile to several claims.
func shareSlices(e *v1alpha1.GPUEntry, name sharedName, replicas int32, fail bool) {
	if e.MIG == nil {
		e.MIG = &v1alpha1.NodeMIG{Replicas: map[string]int32{}, ResourceNames: map[string]string{}}
	}
	e.MIG.Replicas[name.profile], e.MIG.ResourceNames[name.profile] = replicas, name.resource
	e.FailRequestsGreaterThanOne = &fail
}

func (t *translation) slicesHaveNames(at string) {
	if t.strategy != v1alpha1.MIGStrategyMixed {
		t.warn(at+".name", "slices have no resource names of their own with flags.migStrategy %s; set it to %s", t.strategy, v1alpha1.MIGStrategyMixed)
	}
}

// shareWhereGPUsAreSlices: with strategy single nvidia.com/gpu is a MIG device where a GPU has some. The file does not say of which profile.
func (t *translation) shareWhereGPUsAreSlices(e *v1alpha1.GPUEntry, at string, name sharedName, replicas int32) {
	if t.strategy != v1alpha1.MIGStrategySingle {
		return
	}
	name.profile = v1alpha1.AllProfiles
	shareSlices(e, name, replicas, *e.FailRequestsGreaterThanOne)
	e.Origins[name.profile] = at
}

// replicas are needed. How many there may be is judged for the GPUs that they are for.
func (t *translation) replicas(at string, n *int32) bool {
	if n == nil {
		t.refuse(at+".replicas", "no replicas specified; give the number of claims that share a device, 2 or more")
	}
	return n != nil
}

// mps reads the section of MPS shares.
func (t *translation) mps(s *pluginMPS) {
	if s == nil {
		return
	}
	const section = "sharing.mps"
	if len(s.Resources) == 0 {
		t.refuse(section+".resources", noResources)
	}
	if s.FailRequestsGreaterThanOne != nil && !*s.FailRequestsGreaterThanOne {
		t.warn(section+".failRequestsGreaterThanOne", "has no effect; a request for several MPS shares is always refused, as a process uses one")
	}
	for i := range s.Resources {
		t.mpsResource(s, i, fmt.Sprintf("%s.resources[%d]", section, i))
	}
}

func (t *translation) mpsResource(s *pluginMPS, i int, at string) {
	r := &s.Resources[i]
	name, ok := t.shared(at, r.Name, r.Rename, s.RenameByDefault)
	if ok && name.profile != "" {
		t.refuse(at+".name", "MPS shares of MIG slices are not offered; name nvidia.com/gpu, or share the slices with sharing.timeSlicing")
		return
	}
	on, found := t.devices(at+".devices", r.Devices, "")
	sized := t.sized(at, r)
	if !ok || !found || !sized {
		return
	}
	if name.share == nil {
		name.share = new("gpu")
		t.warn(at, "has no rename, so that shares and whole GPUs are both %s; give the shares a name of their own", name.resource)
	}
	t.cuts = append(t.cuts, cut{at: at, family: string(v1alpha1.ModeMPS), on: on, into: func(e *v1alpha1.GPUEntry) {
		e.Modes = append(e.Modes, v1alpha1.ModeMPS)
		e.MPS = &v1alpha1.NodeMPS{ShareName: name.share, ResourceName: &name.resource, Replicas: r.Replicas}
		if r.MemoryGB != nil {
			e.MPS.Memory = exactly(*r.MemoryGB)
		} else {
			e.MPS.ActiveThreadPercentage = &v1alpha1.ShareThreads{Default: new(100 / max(*r.Replicas, v1alpha1.MinMPSReplicas))}
		}
		if e.FailRequestsGreaterThanOne == nil {
			e.FailRequestsGreaterThanOne = new(true)
		}
	}})
}

// sized judges how large the shares are, and that it is said how many there are. A resource has memoryGB and devices, as forks want it, or
// neither, as NVIDIA's device plugin wants it: then the shares are equal parts of every GPU.
func (t *translation) sized(at string, r *mpsResource) bool {
	before := len(t.problems)
	if r.MemoryGB == nil && r.Devices != nil {
		t.refuse(at+".memoryGB", "no memoryGB specified; give the memory of a share in GiB, or remove devices for equal parts of every GPU")
	}
	if r.MemoryGB != nil && r.Devices == nil {
		t.refuse(at+".devices", "no devices specified; list GPUs by index or UUID, or write all")
	}
	if r.MemoryGB != nil && *r.MemoryGB < 1 {
		t.refuse(at+".memoryGB", "%d is out of range; allowed: 1 and up, in GiB", *r.MemoryGB)
	}
	if r.Replicas == nil {
		t.refuse(at+".replicas", "no replicas specified; give the number of shares of each GPU, %d to %d", v1alpha1.MinMPSReplicas,
			v1alpha1.MaxMPSReplicas)
	}
	return len(t.problems) == before
}

// exactly bounds the memory of a share to one size. What they call GB are GiB.
func exactly(memoryGB int32) *v1alpha1.ShareMemory {
	size := resource.NewQuantity(int64(memoryGB)<<30, resource.BinarySI)
	return &v1alpha1.ShareMemory{Default: size, Min: new(size.DeepCopy()), Max: new(size.DeepCopy())}
}

// clashes refuses two cuts of one family that are for all GPUs. Where they have some in common, these are refused: see entries.
func (t *translation) clashes() {
	for i := range t.cuts {
		for j := range i {
			if t.cuts[i].family == t.cuts[j].family && t.cuts[i].on.all && t.cuts[j].on.all {
				t.refuse(t.cuts[i].at+".devices", "are all, as those of %s; a GPU is shared in one way: list devices, or remove one of them", t.cuts[j].at)
			}
		}
	}
}

// alike are GPUs that the same cuts are for.
type alike struct {
	cuts []int
	// counted: only numbers stand for them, so that the node may lack some.
	counted bool
	gpus    []gpuRef
}

// entries makes one entry of all GPUs that have the same cuts, and one for the rest where a cut is for all. A GPU that one family cuts
// twice, which would offer it in two ways that know nothing of each other, gets several entries, and so is refused alone.
func (t *translation) entries() []v1alpha1.GPUEntry {
	var groups []alike
	for _, ref := range t.named() {
		own := t.cutsOf(ref)
		for _, cuts := range t.layers(own.cuts) {
			same := slices.IndexFunc(groups, func(g alike) bool { return slices.Equal(g.cuts, cuts) && g.counted == own.counted })
			if same < 0 {
				same, groups = len(groups), append(groups, alike{cuts: cuts, counted: own.counted})
			}
			groups[same].gpus = append(groups[same].gpus, ref)
		}
	}
	var entries []v1alpha1.GPUEntry
	for _, g := range groups {
		entry := t.entry(g.cuts)
		entry.Select = selectOf(g.gpus, !g.counted)
		entries = append(entries, entry)
	}
	var rest []int
	for i, c := range t.cuts {
		if c.on.all {
			rest = append(rest, i)
		}
	}
	if len(rest) > 0 {
		entries = append(entries, t.entry(rest))
	}
	return entries
}

// named lists the GPUs that stand in the file.
func (t *translation) named() []gpuRef {
	var refs []gpuRef
	for _, c := range t.cuts {
		for _, ref := range c.on.gpus {
			if !slices.Contains(refs, ref) {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

// cutsOf finds what is done to one GPU.
func (t *translation) cutsOf(ref gpuRef) alike {
	own := alike{counted: true}
	for i, c := range t.cuts {
		named := slices.Contains(c.on.gpus, ref)
		if named || c.on.all {
			own.cuts = append(own.cuts, i)
		}
		own.counted = own.counted && (!named || c.on.counted)
	}
	return own
}

// layers divides the cuts of a GPU so that none has two of one family: one layer where all is well.
func (t *translation) layers(cuts []int) [][]int {
	var layers [][]int
	for _, i := range cuts {
		free := slices.IndexFunc(layers, func(layer []int) bool {
			return !slices.ContainsFunc(layer, func(j int) bool { return t.cuts[j].family == t.cuts[i].family })
		})
		if free < 0 {
			free, layers = len(layers), append(layers, nil)
		}
		layers[free] = append(layers[free], i)
	}
	return layers
}

// entry applies cuts to one entry. GPUs whose slices alone are shared stay whole.
func (t *translation) entry(cuts []int) v1alpha1.GPUEntry {
	entry := v1alpha1.GPUEntry{Origins: map[string]string{}}
	for _, i := range cuts {
		t.cuts[i].into(&entry)
		entry.Origins[t.cuts[i].family] = t.cuts[i].at
	}
	return entry
}
