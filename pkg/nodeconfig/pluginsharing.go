package nodeconfig

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

type pluginSharing struct {
	TimeSlicing *pluginTimeSlicing `json:"timeSlicing"`
	MPS         *pluginMPS         `json:"mps"`
}

type pluginTimeSlicing struct {
	RenameByDefault            *bool               `json:"renameByDefault"`
	FailRequestsGreaterThanOne *bool               `json:"failRequestsGreaterThanOne"`
	Resources                  []timeSliceResource `json:"resources"`
}

type timeSliceResource struct {
	Name     *string `json:"name"`
	Rename   *string `json:"rename"`
	Devices  any     `json:"devices"`
	Replicas *int32  `json:"replicas"`
}

type pluginMPS struct {
	RenameByDefault            *bool         `json:"renameByDefault"`
	FailRequestsGreaterThanOne *bool         `json:"failRequestsGreaterThanOne"`
	Resources                  []mpsResource `json:"resources"`
}

type mpsResource struct {
	Name     *string `json:"name"`
	Rename   *string `json:"rename"`
	MemoryGB *int32  `json:"memoryGB"`
	Replicas *int32  `json:"replicas"`
	Devices  any     `json:"devices"`
}

// sharingFlags are the flags about shares.
type sharingFlags struct {
	MPSRoot *string `json:"mpsRoot"`
}

// obsolete warns of flags that are meaningless here.
func (f sharingFlags) obsolete(t *translation) {
	if f.MPSRoot != nil {
		t.warn("flags.mpsRoot", "is ignored; the directories of MPS daemons are below the directory of the driver's plugin")
	}
}

// sharing is one resource of the file: which GPUs it shares, and how.
type sharing struct {
	// at is the resource's path.
	at string
	// family is a property that a GPU may have once: a mode, or the profile of MIG devices.
	family string
	// on are the GPUs.
	on chosen
	// into writes the sharing into the entry of such GPUs.
	into func(*v1alpha1.GPUEntry)
}

const noResources = "no resources specified; name at least one, or remove the section"

// sharingSection reads the section of all shares.
func (t *translation) sharingSection(s *pluginSharing) {
	if s != nil {
		t.timeSlicing(s.TimeSlicing)
		t.mps(s.MPS)
	}
}

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
		c := sharing{at: at, family: string(v1alpha1.ModeTimeSlice), on: on}
		if name.profile != "" {
			c.family = name.profile
			c.into = func(e *v1alpha1.GPUEntry) { shareMIGDevices(e, name, *r.Replicas, fail) }
			t.slicesHaveNames(at)
		} else {
			c.into = func(e *v1alpha1.GPUEntry) {
				e.Modes = append(e.Modes, v1alpha1.ModeTimeSlice)
				e.TimeSlice = &v1alpha1.NodeTimeSlice{Replicas: r.Replicas, ShareName: name.share, ResourceName: &name.resource}
				e.FailRequestsGreaterThanOne = &fail
				t.shareWhereGPUsAreSlices(e, at, name, *r.Replicas)
			}
		}
		t.sharing = append(t.sharing, c)
	}
}

// shareMIGDevices shares each MIG device of a profile among several claims.
func shareMIGDevices(e *v1alpha1.GPUEntry, name sharedName, replicas int32, fail bool) {
	if e.MIG == nil {
		e.MIG = &v1alpha1.NodeMIG{Replicas: map[string]int32{}, ResourceNames: map[string]string{}}
	}
	e.MIG.Replicas[name.profile], e.MIG.ResourceNames[name.profile] = replicas, name.resource
	e.FailRequestsGreaterThanOne = &fail
}

func (t *translation) slicesHaveNames(at string) {
	if t.strategy != v1alpha1.MIGStrategyMixed {
		t.warn(at+".name", "MIG devices have no resource names of their own with flags.migStrategy %s; set it to %s", t.strategy, v1alpha1.MIGStrategyMixed)
	}
}

// shareWhereGPUsAreSlices: with strategy single nvidia.com/gpu is a MIG device if a GPU has some. The file does not name the profile.
func (t *translation) shareWhereGPUsAreSlices(e *v1alpha1.GPUEntry, at string, name sharedName, replicas int32) {
	if t.strategy != v1alpha1.MIGStrategySingle {
		return
	}
	name.profile = v1alpha1.AllProfiles
	shareMIGDevices(e, name, replicas, *e.FailRequestsGreaterThanOne)
	e.Origins[name.profile] = at
}

// replicas are required. How many there may be is checked for the GPUs that they are for.
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
		t.refuse(at+".name", "MPS shares of MIG devices are not supported; name nvidia.com/gpu, or share the MIG devices with sharing.timeSlicing")
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
	t.sharing = append(t.sharing, sharing{at: at, family: string(v1alpha1.ModeMPS), on: on, into: func(e *v1alpha1.GPUEntry) {
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

// sized checks how large the shares are, and that their number is set. A resource has memoryGB and devices, as forks of NVIDIA's device
// plugin require it, or neither, as NVIDIA's device plugin requires it: then the shares are equal parts of every GPU.
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

// exactly bounds the memory of a share to one size. The device plugin's GB are GiB.
func exactly(memoryGB int32) *v1alpha1.ShareMemory {
	size := resource.NewQuantity(int64(memoryGB)<<30, resource.BinarySI)
	return &v1alpha1.ShareMemory{Default: size, Min: new(size.DeepCopy()), Max: new(size.DeepCopy())}
}

// clashes refuses two sharings of one family that are for all GPUs. If they have only some GPUs in common, only these are refused: see
// entries.
func (t *translation) clashes() {
	for i := range t.sharing {
		for j := range i {
			if t.sharing[i].family == t.sharing[j].family && t.sharing[i].on.all && t.sharing[j].on.all {
				t.refuse(t.sharing[i].at+".devices", "are all, like the devices of %s; a GPU is shared in one way: list devices, or remove one of them%s",
					t.sharing[j].at, anySize(v1alpha1.Mode(t.sharing[i].family)))
			}
		}
	}
}

// anySize ends the advice about two sizes of shares of one GPU, if shares of the mode have sizes.
func anySize(mode v1alpha1.Mode) string {
	if mode != v1alpha1.ModeMPS {
		return ""
	}
	return "; for shares of any size of one GPU, write a " + v1alpha1.KindNodeConfig + " with mode mps and request capacity.requests.memory in claims"
}

// alike are GPUs that the same sharings are for.
type alike struct {
	sharings []int
	// counted: only numbers stand for them, so that the node may lack some.
	counted bool
	gpus    []gpuRef
}

// entries makes one entry of all GPUs that have the same sharings, and one for the rest if a sharing is for all. A GPU that one family
// shares twice would be advertised in two ways that do not exclude each other. It gets several entries, so that it alone is refused.
func (t *translation) entries() []v1alpha1.GPUEntry {
	var groups []alike
	for _, ref := range t.named() {
		own := t.cutsOf(ref)
		for _, sharings := range t.layers(own.sharings) {
			same := slices.IndexFunc(groups, func(g alike) bool { return slices.Equal(g.sharings, sharings) && g.counted == own.counted })
			if same < 0 {
				same, groups = len(groups), append(groups, alike{sharings: sharings, counted: own.counted})
			}
			groups[same].gpus = append(groups[same].gpus, ref)
		}
	}
	var entries []v1alpha1.GPUEntry
	for _, g := range groups {
		entry := t.entry(g.sharings)
		entry.Select = selectOf(g.gpus, g.counted)
		entries = append(entries, entry)
	}
	var rest []int
	for i, c := range t.sharing {
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
	for _, c := range t.sharing {
		for _, ref := range c.on.gpus {
			if !slices.Contains(refs, ref) {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

// cutsOf finds the sharings of one GPU.
func (t *translation) cutsOf(ref gpuRef) alike {
	own := alike{counted: true}
	for i, c := range t.sharing {
		named := slices.Contains(c.on.gpus, ref)
		if named || c.on.all {
			own.sharings = append(own.sharings, i)
		}
		own.counted = own.counted && (!named || c.on.counted)
	}
	return own
}

// layers divides the sharings of a GPU so that no layer contains two of one family: one layer if nothing is wrong.
func (t *translation) layers(sharings []int) [][]int {
	var layers [][]int
	for _, i := range sharings {
		free := slices.IndexFunc(layers, func(layer []int) bool {
			return !slices.ContainsFunc(layer, func(j int) bool { return t.sharing[j].family == t.sharing[i].family })
		})
		if free < 0 {
			free, layers = len(layers), append(layers, nil)
		}
		layers[free] = append(layers[free], i)
	}
	return layers
}

// entry applies sharings to one entry. GPUs of which only MIG devices are shared stay whole.
func (t *translation) entry(sharings []int) v1alpha1.GPUEntry {
	entry := v1alpha1.GPUEntry{Origins: map[string]string{}}
	for _, i := range sharings {
		t.sharing[i].into(&entry)
		entry.Origins[t.sharing[i].family] = t.sharing[i].at
	}
	return entry
}
