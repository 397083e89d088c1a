package model

import "slices"

// Placement is a range of memory slices (of a GPU instance) or of compute slices (of a compute instance).
type Placement struct {
	Start uint32 `json:"start"`
	Size  uint32 `json:"size"`
}

// Overlaps reports whether two placements share a memory or compute slice.
func (p Placement) Overlaps(q Placement) bool {
	return p.Start < q.Start+q.Size && q.Start < p.Start+p.Size
}

// Media is a profile's share of the engines that exist once per GPU (OFA, on Ampere JPEG too).
type Media int

// The media shares. Names end in "+me", "-me" and "+me.all" for the last three.
const (
	MediaPlain Media = iota // no engine that exists once
	MediaExtra              // the engines that exist once: one instance per GPU
	MediaNone               // no engine at all: compatible with all others
	MediaAll                // all engines: compatible with MediaNone only
)

// MIGProfile is a GPU instance profile of a board.
type MIGProfile struct {
	Index           uint32 // NVML's NVML_GPU_INSTANCE_PROFILE_…
	ID              uint32 // the id in NVML's other calls
	Name            string // "1g.10gb+me"
	Slices          int    // compute slices
	Instances       int    // most that fit at once
	Multiprocessors int
	// Narrow is the number of multiprocessors of a compute instance of one compute slice that does not fill a GPU instance of one; 0
	// if it does.
	Narrow    int
	Engines   Engines
	MemoryMiB uint64
	Size      uint32   // memory slices
	Starts    []uint32 // possible starts of an instance
	Media     Media
	Graphics  bool // "+gfx"
	Since     int  // first driver branch that supports it
}

// Placements lists the possible placements of an instance of the profile.
func (p MIGProfile) Placements() []Placement {
	list := make([]Placement, len(p.Starts))
	for i, start := range p.Starts {
		list[i] = Placement{start, p.Size}
	}
	return list
}

// excludes reports whether the engines of two profiles exclude each other on one GPU.
func (p MIGProfile) excludes(q MIGProfile) bool {
	if p.Media == MediaNone || q.Media == MediaNone {
		return false
	}
	return p.Media == MediaAll || q.Media == MediaAll || (p.Media == MediaExtra && q.Media == MediaExtra)
}

// shape is the part of a profile that all boards of a family share.
type shape struct {
	index, id uint32
	slices    int
	size      uint32
	starts    []uint32
	media     Media
	since     int
}

// of returns a profile with the shape. Since is the first branch with MIG unless the shape sets one.
func (s shape) of(name string, multiprocessors int, memoryMiB uint64, engines Engines) MIGProfile {
	instances := len(s.starts)
	if s.media == MediaExtra || s.media == MediaAll {
		instances = 1
	}
	return MIGProfile{
		Index: s.index, ID: s.id, Name: name, Slices: s.slices, Instances: instances, Multiprocessors: multiprocessors,
		Engines: engines, MemoryMiB: memoryMiB, Size: s.size, Starts: slices.Clone(s.starts), Media: s.media, Since: max(s.since, 450),
	}
}

// narrowed returns the profile with that number of multiprocessors in a compute instance of one compute slice.
func (p MIGProfile) narrowed(multiprocessors int) MIGProfile {
	p.Narrow = multiprocessors
	return p
}

// The shapes of boards with 8 memory slices and 7 compute slices.
var (
	oneOf7       = shape{index: 0, id: 19, slices: 1, size: 1, starts: []uint32{0, 1, 2, 3, 4, 5, 6}}
	oneMediaOf7  = shape{index: 7, id: 20, slices: 1, size: 1, starts: []uint32{0, 1, 2, 3, 4, 5, 6}, media: MediaExtra, since: 470}
	oneDoubleOf7 = shape{index: 9, id: 15, slices: 1, size: 2, starts: []uint32{0, 2, 4, 6}, since: 525}
	twoOf7       = shape{index: 1, id: 14, slices: 2, size: 2, starts: []uint32{0, 2, 4}}
	threeOf7     = shape{index: 2, id: 9, slices: 3, size: 4, starts: []uint32{0, 4}}
	fourOf7      = shape{index: 3, id: 5, slices: 4, size: 4, starts: []uint32{0}}
	sevenOf7     = shape{index: 4, id: 0, slices: 7, size: 8, starts: []uint32{0}}
)

// The shapes of boards with 4 memory slices and 4 compute slices.
var (
	oneOf4      = shape{index: 0, id: 14, slices: 1, size: 1, starts: []uint32{0, 1, 2, 3}}
	oneMediaOf4 = shape{index: 7, id: 21, slices: 1, size: 1, starts: []uint32{0, 1, 2, 3}, media: MediaExtra, since: 470}
	twoOf4      = shape{index: 1, id: 5, slices: 2, size: 2, starts: []uint32{0, 2}}
	twoMediaOf4 = shape{index: 8, id: 6, slices: 2, size: 2, starts: []uint32{0, 2}, media: MediaExtra, since: 525}
	fourOf4     = shape{index: 3, id: 0, slices: 4, size: 4, starts: []uint32{0}}
)

var a30Profiles = []MIGProfile{
	oneOf4.of("1g.6gb", 14, 5836, Engines{Copy: 1}),
	oneMediaOf4.of("1g.6gb+me", 14, 5836, Engines{Copy: 1, Decoder: 1, JPEG: 1, OFA: 1}),
	twoOf4.of("2g.12gb", 28, 11672, Engines{Copy: 2, Decoder: 2}),
	twoMediaOf4.of("2g.12gb+me", 28, 11672, Engines{Copy: 2, Decoder: 2, JPEG: 1, OFA: 1}),
	fourOf4.of("4g.24gb", 56, 23344, Engines{Copy: 4, Decoder: 4, JPEG: 1, OFA: 1}),
}

var a100x40Profiles = []MIGProfile{
	oneOf7.of("1g.5gb", 14, 4864, Engines{Copy: 1}),
	oneMediaOf7.of("1g.5gb+me", 14, 4864, Engines{Copy: 1, Decoder: 1, JPEG: 1, OFA: 1}),
	oneDoubleOf7.of("1g.10gb", 14, 9856, Engines{Copy: 1, Decoder: 1}),
	twoOf7.of("2g.10gb", 28, 9856, Engines{Copy: 2, Decoder: 1}),
	threeOf7.of("3g.20gb", 42, 19968, Engines{Copy: 3, Decoder: 2}),
	fourOf7.of("4g.20gb", 56, 19968, Engines{Copy: 4, Decoder: 2}),
	sevenOf7.of("7g.40gb", 98, 40192, Engines{Copy: 7, Decoder: 5, JPEG: 1, OFA: 1}),
}

var a100x80Profiles = []MIGProfile{
	oneOf7.of("1g.10gb", 14, 9728, Engines{Copy: 1}),
	oneMediaOf7.of("1g.10gb+me", 14, 9728, Engines{Copy: 1, Decoder: 1, JPEG: 1, OFA: 1}),
	oneDoubleOf7.of("1g.20gb", 14, 19968, Engines{Copy: 1, Decoder: 1}),
	twoOf7.of("2g.20gb", 28, 19968, Engines{Copy: 2, Decoder: 1}),
	threeOf7.of("3g.40gb", 42, 40192, Engines{Copy: 3, Decoder: 2}),
	fourOf7.of("4g.40gb", 56, 40192, Engines{Copy: 4, Decoder: 2}),
	sevenOf7.of("7g.80gb", 98, 80896, Engines{Copy: 7, Decoder: 5, JPEG: 1, OFA: 1}),
}

var h100x80Profiles = []MIGProfile{
	oneOf7.of("1g.10gb", 16, 9984, Engines{Copy: 1, Decoder: 1, JPEG: 1}),
	oneMediaOf7.of("1g.10gb+me", 16, 9984, Engines{Copy: 1, Decoder: 1, JPEG: 1, OFA: 1}),
	oneDoubleOf7.of("1g.20gb", 26, 20096, Engines{Copy: 1, Decoder: 1, JPEG: 1}).narrowed(16),
	twoOf7.of("2g.20gb", 32, 20096, Engines{Copy: 2, Decoder: 2, JPEG: 2}),
	threeOf7.of("3g.40gb", 60, 40448, Engines{Copy: 3, Decoder: 3, JPEG: 3}),
	fourOf7.of("4g.40gb", 64, 40448, Engines{Copy: 4, Decoder: 4, JPEG: 4}),
	sevenOf7.of("7g.80gb", 132, 81152, Engines{Copy: 8, Decoder: 7, JPEG: 7, OFA: 1}),
}

var h200x141Profiles = []MIGProfile{
	oneOf7.of("1g.18gb", 16, 16384, Engines{Copy: 1, Decoder: 1, JPEG: 1}),
	oneMediaOf7.of("1g.18gb+me", 16, 16384, Engines{Copy: 1, Decoder: 1, JPEG: 1, OFA: 1}),
	oneDoubleOf7.of("1g.35gb", 26, 33280, Engines{Copy: 1, Decoder: 1, JPEG: 1}).narrowed(16),
	twoOf7.of("2g.35gb", 32, 33280, Engines{Copy: 2, Decoder: 2, JPEG: 2}),
	threeOf7.of("3g.71gb", 60, 71168, Engines{Copy: 3, Decoder: 3, JPEG: 3}),
	fourOf7.of("4g.71gb", 64, 71168, Engines{Copy: 4, Decoder: 4, JPEG: 4}),
	sevenOf7.of("7g.141gb", 132, 143104, Engines{Copy: 8, Decoder: 7, JPEG: 7, OFA: 1}),
}

var b200x180Profiles = []MIGProfile{
	oneOf7.of("1g.23gb", 18, 22016, Engines{Copy: 2, Decoder: 1, JPEG: 1}),
	oneMediaOf7.of("1g.23gb+me", 18, 22016, Engines{Copy: 2, Decoder: 1, JPEG: 1, OFA: 1}),
	oneDoubleOf7.of("1g.45gb", 30, 45056, Engines{Copy: 2, Decoder: 1, JPEG: 1}).narrowed(18),
	twoOf7.of("2g.45gb", 36, 45056, Engines{Copy: 3, Decoder: 2, JPEG: 2}),
	threeOf7.of("3g.90gb", 70, 91136, Engines{Copy: 6, Decoder: 3, JPEG: 3}),
	fourOf7.of("4g.90gb", 72, 91136, Engines{Copy: 8, Decoder: 4, JPEG: 4}),
	sevenOf7.of("7g.180gb", 148, 182528, Engines{Copy: 16, Decoder: 7, JPEG: 7, OFA: 1}),
}

// ComputeProfile is a compute instance profile of a GPU instance. Its number is both NVML's index and its id.
type ComputeProfile struct {
	ID              uint32
	Name            string // "1c.3g.40gb", "3g.40gb" for the whole GPU instance
	Slices          int
	Instances       int
	Multiprocessors int
}

// The compute slices of NVML's compute instance profiles, by index.
var computeSlices = []int{1, 2, 3, 4, 7}

// revisedSlice is NVML's index of the second compute instance profile of one compute slice, NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1.
const revisedSlice = 7

// ComputeProfiles lists the compute instances that a GPU instance of the profile can hold. The last one fills it.
func (p MIGProfile) ComputeProfiles() []ComputeProfile {
	if p.Narrow != 0 {
		return []ComputeProfile{
			{ID: 0, Name: "1c." + p.Name, Slices: 1, Instances: 1, Multiprocessors: p.Narrow},
			{ID: revisedSlice, Name: p.Name, Slices: 1, Instances: 1, Multiprocessors: p.Multiprocessors},
		}
	}
	var list []ComputeProfile
	for i, slices := range computeSlices {
		if slices > p.Slices {
			break
		}
		if slices == 3 && p.Slices == 4 {
			continue // the hardware does not support it
		}
		c := ComputeProfile{
			ID: uint32(i), Name: p.Name, Slices: slices, Instances: p.Slices / slices,
			Multiprocessors: p.Multiprocessors / p.Slices * slices,
		}
		if slices == p.Slices {
			c.Multiprocessors = p.Multiprocessors
		} else {
			c.Name = string(rune('0'+slices)) + "c." + p.Name
		}
		list = append(list, c)
	}
	return list
}

// ComputePlacements lists the possible placements of a compute instance, in compute slices of a GPU instance of the profile: anywhere. Only
// boards that are not in the catalog align them.
func (p MIGProfile) ComputePlacements(c ComputeProfile) []Placement {
	var list []Placement
	for start := 0; start+c.Slices <= p.Slices; start++ {
		list = append(list, Placement{uint32(start), uint32(c.Slices)})
	}
	return list
}
