package cluster

import (
	"cmp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Place identifies a GPU: the node, and the GPU's name, which begins the names of its devices: "gpu-5d3f61a2".
type Place struct {
	Node string `json:"node"`
	Name string `json:"gpu"`
}

// GPU is a physical GPU, as the ResourceSlices of its node describe it.
type GPU struct {
	Place
	UUID string `json:"uuid"`
	// Index is unknown for a GPU that is advertised only as MIG devices that are made for claims.
	Index         *int64 `json:"index,omitempty"`
	Product       string `json:"product,omitempty"`
	DriverVersion string `json:"driverVersion,omitempty"`
	// Devices counts the devices of each type.
	Devices map[string]int `json:"devices"`
	Taints  []Taint        `json:"taints,omitempty"`
	// ids are the UUIDs of its devices.
	ids map[string]bool
}

// Taint is a taint of devices of a GPU.
type Taint struct {
	Key    string       `json:"key"`
	Value  string       `json:"value,omitempty"`
	Effect string       `json:"effect"`
	Since  *metav1.Time `json:"since,omitempty"`
	// Devices is the number of devices with the taint.
	Devices int `json:"devices"`
}

// Total is the number of devices.
func (g *GPU) Total() (n int) {
	for _, count := range g.Devices {
		n += count
	}
	return n
}

// Tainted reports whether all devices of the GPU have a taint of that key.
func (g *GPU) Tainted(key string) bool {
	n := 0
	for _, t := range g.Taints {
		if t.Key == key {
			n += t.Devices
		}
	}
	return n >= g.Total()
}

// NameOf returns the name of a device's GPU, which begins the name of the device; "" for a device of the whole node.
func NameOf(device string) string {
	prefix, rest, found := strings.Cut(device, "-")
	id, _, _ := strings.Cut(rest, "-")
	if !found || prefix != "gpu" || id == "" {
		return ""
	}
	return prefix + "-" + id
}

// GPUs returns the GPUs in ResourceSlices, sorted by node and index.
func GPUs(list []resourceapi.ResourceSlice) []GPU {
	found := map[Place]*GPU{}
	fresh := current(list)
	for i := range list {
		if !fresh[i] {
			continue
		}
		s := &list[i].Spec
		for j := range s.Devices {
			d := &s.Devices[j]
			at := Place{*s.NodeName, NameOf(d.Name)}
			if at.Name == "" {
				continue
			}
			if found[at] == nil {
				found[at] = &GPU{Place: at, Devices: map[string]int{}, ids: map[string]bool{}}
			}
			found[at].add(s.Driver, d)
		}
	}
	var all []GPU
	for _, g := range found {
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b GPU) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), compareIndex(a.Index, b.Index), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// current returns the indexes of ResourceSlices of nodes in the newest generation of their pools.
func current(list []resourceapi.ResourceSlice) map[int]bool {
	newest := map[string]int64{}
	for i := range list {
		pool := list[i].Spec.Pool
		newest[pool.Name] = max(newest[pool.Name], pool.Generation)
	}
	indexes := map[int]bool{}
	for i := range list {
		s := &list[i].Spec
		if s.NodeName != nil && s.Pool.Generation == newest[s.Pool.Name] {
			indexes[i] = true
		}
	}
	return indexes
}

func compareIndex(a, b *int64) int {
	switch {
	case a != nil && b != nil:
		return cmp.Compare(*a, *b)
	case a != nil:
		return -1
	case b != nil:
		return 1
	}
	return 0
}

// add adds a device.
func (g *GPU) add(driver string, d *resourceapi.Device) {
	g.Devices[Text(d, driver, "type")]++
	g.UUID = cmp.Or(g.UUID, Text(d, driver, "parentUUID"))
	g.Product = cmp.Or(g.Product, Text(d, driver, "productName"))
	if version := Attribute(d, driver, "driverVersion"); version.VersionValue != nil {
		g.DriverVersion = *version.VersionValue
	}
	if index := Attribute(d, driver, "index"); index.IntValue != nil {
		g.Index = index.IntValue
	}
	g.ids[Text(d, driver, "uuid")] = true
	for _, t := range d.Taints {
		i := slices.IndexFunc(g.Taints, func(other Taint) bool {
			return other.Key == t.Key && other.Value == t.Value && other.Effect == string(t.Effect)
		})
		if i < 0 {
			i = len(g.Taints)
			g.Taints = append(g.Taints, Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect), Since: t.TimeAdded})
		}
		g.Taints[i].Devices++
	}
}

// Attribute returns an attribute of the driver's domain.
func Attribute(d *resourceapi.Device, driver, name string) resourceapi.DeviceAttribute {
	if value, ok := d.Attributes[resourceapi.QualifiedName(name)]; ok {
		return value
	}
	return d.Attributes[resourceapi.QualifiedName(driver+"/"+name)]
}

// Text returns an attribute that is a string; "" without one.
func Text(d *resourceapi.Device, driver, name string) string {
	if value := Attribute(d, driver, name).StringValue; value != nil {
		return *value
	}
	return ""
}

// results returns the devices of a driver that are allocated to a claim.
func results(claim *resourceapi.ResourceClaim, driver string) (of []resourceapi.DeviceRequestAllocationResult) {
	if claim.Status.Allocation == nil {
		return nil
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver == driver {
			of = append(of, r)
		}
	}
	return of
}

// Allocated returns the GPUs of a claim, each once. The name of a pool begins with the name of its node.
func Allocated(claim *resourceapi.ResourceClaim, driver string) (gpus []Place) {
	for _, r := range results(claim, driver) {
		node, _, _ := strings.Cut(r.Pool, "/")
		if at := (Place{node, NameOf(r.Device)}); at.Name != "" && !slices.Contains(gpus, at) {
			gpus = append(gpus, at)
		}
	}
	return gpus
}
