package clusterview

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
)

// Names that the plugin publishes.
const (
	counterMemorySlice = "memory-slice-"
	counterMemory      = "memory"
	typeMIG            = "mig"
)

// gpuFacts describe a GPU as far as the ResourceSlices of a shape do. Where values differ from node to node they are numbers of names.
type gpuFacts struct {
	name int
	// uuid and index are -1 without such a name.
	uuid, index       int
	product, version  string
	memory            int64
	memorySlices      int
	devices, profiles map[string]int
	taints            []taintFact
	// members are the devices by their names after the name of the GPU.
	members map[string]member
}

// taintFact is a taint whose times are the names with the numbers in added.
type taintFact struct {
	Taint

	added []int
}

// member is a device of a GPU.
type member struct {
	kind, profile string
	memory        int64
	start, size   int
}

// describe collects the facts about the GPUs. tokens are the names of the ResourceSlice from which the shape was made.
func (s *shape) describe(tokens []token) {
	known := func(of class, value string) int {
		return slices.IndexFunc(tokens, func(t token) bool { return t.class == of && string(t.value) == value })
	}
	find := func(device string) *gpuFacts {
		name := NameOf(device)
		if name == "" {
			return nil
		}
		number := known(className, name)
		i := slices.IndexFunc(s.gpus, func(g gpuFacts) bool { return g.name == number })
		if i < 0 {
			i = len(s.gpus)
			s.gpus = append(s.gpus, gpuFacts{
				name: number, uuid: -1, index: -1, devices: map[string]int{}, profiles: map[string]int{}, members: map[string]member{},
			})
		}
		return &s.gpus[i]
	}
	for i := range s.spec.SharedCounters {
		if g := find(s.spec.SharedCounters[i].Name); g != nil {
			g.addCounters(&s.spec.SharedCounters[i])
		}
	}
	for i := range s.spec.Devices {
		d := &s.spec.Devices[i]
		g := find(d.Name)
		if g == nil {
			continue
		}
		g.addDevice(s.spec.Driver, d)
		if uuid := Text(d, s.spec.Driver, "parentUUID"); uuid != "" {
			g.uuid = known(classUUID, uuid)
		}
		if index := Attribute(d, s.spec.Driver, "index"); index.IntValue != nil {
			g.index = slices.IndexFunc(tokens, func(t token) bool { return t.class == classIndex && number(string(t.value)) == *index.IntValue })
		}
		for _, t := range d.Taints {
			fact := taintFact{Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect), Devices: 1}, nil}
			if t.TimeAdded != nil {
				encoded, _ := t.TimeAdded.Marshal()
				fact.added = []int{known(classTime, string(encoded))}
			}
			g.addTaint(fact)
		}
	}
	for i := range s.gpus {
		s.gpus[i].place()
	}
}

// addCounters adds the memory of a GPU that can be partitioned.
func (g *gpuFacts) addCounters(set *resourceapi.CounterSet) {
	for name, counter := range set.Counters {
		if strings.HasPrefix(name, counterMemorySlice) {
			g.memorySlices++
		}
		if name == counterMemory {
			g.memory = counter.Value.Value()
		}
	}
}

func (g *gpuFacts) addDevice(driver string, d *resourceapi.Device) {
	m := member{kind: Text(d, driver, "type"), memory: capacity(d, counterMemory)}
	g.devices[m.kind]++
	if m.kind == typeMIG {
		m.profile = Text(d, driver, "profile")
		g.profiles[m.profile]++
		m.start, m.size = placement(d)
	} else if len(d.ConsumesCounters) == 0 {
		g.memory = max(g.memory, m.memory)
	}
	_, suffix := split(d.Name)
	g.members[suffix] = m
	g.product = cmp.Or(g.product, Text(d, driver, "productName"))
	if version := Attribute(d, driver, "driverVersion"); version.VersionValue != nil {
		g.version = *version.VersionValue
	}
}

func (g *gpuFacts) addTaint(fact taintFact) {
	for i := range g.taints {
		if have := &g.taints[i]; have.Key == fact.Key && have.Value == fact.Value && have.Effect == fact.Effect {
			have.Devices++
			if len(fact.added) > 0 && !slices.Contains(have.added, fact.added[0]) {
				have.added = append(have.added, fact.added[0])
			}
			return
		}
	}
	g.taints = append(g.taints, fact)
}

// capacity returns a capacity of a device; 0 without it.
func capacity(d *resourceapi.Device, name resourceapi.QualifiedName) int64 {
	value := d.Capacity[name].Value
	return value.Value()
}

// placement returns the memory slices that a MIG device consumes; size is 0 if the ResourceSlice has no counters.
func placement(d *resourceapi.Device) (start, size int) {
	start = -1
	for _, consumed := range d.ConsumesCounters {
		for name := range consumed.Counters {
			text, found := strings.CutPrefix(name, counterMemorySlice)
			if n, err := strconv.Atoi(text); found && err == nil {
				if start < 0 || n < start {
					start = n
				}
				size++
			}
		}
	}
	return max(start, 0), size
}

// memorySlicesOf are the memory slices of most profiles, by their compute slices. Profiles with more memory for one compute slice exist.
var memorySlicesOf = map[string]int64{"1": 1, "2": 2, "3": 4, "4": 4, "7": 8}

// place finds the memory slices of MIG devices without counters, which were created before their claims. Their names end with the first
// memory slice; the device with the least memory for its profile shows how much a memory slice has.
func (g *gpuFacts) place() {
	var unit, total int64
	for _, m := range g.members {
		compute, _, _ := strings.Cut(m.profile, "g")
		if n := memorySlicesOf[compute]; n > 0 && m.size == 0 && (unit == 0 || m.memory/n < unit) {
			unit = m.memory / n
		}
	}
	for suffix, m := range g.members {
		start, err := strconv.Atoi(suffix[strings.LastIndexByte(suffix, '-')+1:])
		if m.kind != typeMIG || m.size > 0 || err != nil || unit == 0 {
			continue
		}
		m.start, m.size = start, int(max(1, (m.memory+unit/2)/unit))
		g.members[suffix] = m
		total += m.memory
		g.memorySlices = max(g.memorySlices, m.start+m.size)
	}
	g.memory = max(g.memory, total)
}
