package publish

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Attributes are the attributes that a selector can use for a device.
type Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// Capacities are the amounts of a device, by name.
type Capacities = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity

// Counters are the amounts of a GPU's shared resources, available or taken, by name.
type Counters = map[string]resourceapi.Counter

// DevicePublisher publishes the devices of one family, the devices of one type. Each is in its own file.
type DevicePublisher interface {
	// Type is the type of the devices; the others get no devices of another one.
	Type() gpu.DeviceType
	// Attributes returns the attributes of a device. It may change common, the attributes that every device on the GPU can have.
	Attributes(d gpu.Device, common Attributes, driverName string) Attributes
	// Capacities returns the capacities of a device of the node. A device with several shares has capacities with a request policy.
	Capacities(d gpu.Device, node *gpu.Node, driverName string) Capacities
	// Counters returns the part of all counters of its GPU that a device takes; nil if it takes nothing.
	Counters(d gpu.Device, all Counters) Counters
	// Compare orders two devices of a GPU: negative if a is allocated before b. Equal ones keep their order.
	Compare(a, b gpu.Device) int
}

// Families are the families of this package, in the order in which the scheduler gets their devices.
func Families() []DevicePublisher {
	return []DevicePublisher{whole{}, timeSlice{}, mpsShare{}, mig{}, monitor{}, perfmon{}}
}

// member is a device with the family that it is published by.
type member struct {
	device gpu.Device
	family DevicePublisher
	rank   int // of its family
}

// members puts the devices into the order in which they are to be allocated: the scheduler takes the first that fits. A device of a
// family that is not in the table is left out.
func (o Options) members(devices []gpu.Device) []member {
	families := o.Families
	if families == nil {
		families = Families()
	}
	members := make([]member, 0, len(devices))
	for _, d := range devices {
		kind := d.Type()
		if i := slices.IndexFunc(families, func(f DevicePublisher) bool { return f.Type() == kind }); i >= 0 {
			members = append(members, member{device: d, family: families[i], rank: i})
		}
	}
	slices.SortStableFunc(members, func(a, b member) int {
		if a.rank != b.rank {
			return cmp.Compare(a.rank, b.rank)
		}
		return a.family.Compare(a.device, b.device)
	})
	return members
}

// keep leaves the named attributes of a set.
func keep(set Attributes, names ...resourceapi.QualifiedName) Attributes {
	kept := make(Attributes, len(names))
	for _, name := range names {
		if value, ok := set[name]; ok {
			kept[name] = value
		}
	}
	return kept
}
