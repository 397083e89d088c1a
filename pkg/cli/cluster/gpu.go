package cluster

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
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

// GPUs returns the GPUs in ResourceSlices, sorted by node and index.
func GPUs(list []resourceapi.ResourceSlice) (all []GPU) {
	store := clusterview.NewStore()
	var drivers []string
	for i := range list {
		store.PutSlice(&list[i])
		if driver := list[i].Spec.Driver; !slices.Contains(drivers, driver) {
			drivers = append(drivers, driver)
		}
	}
	picture := store.Cluster()
	ids := uuids(picture)
	for _, driver := range drivers {
		for _, g := range picture.GPUs(driver) {
			if len(g.Devices) == 0 {
				continue // it has only counters
			}
			of := GPU{
				Place: Place{g.Node.Name, g.Name}, UUID: g.UUID, Index: g.Index, Product: g.Product, DriverVersion: g.DriverVersion, Devices: g.Devices,
			}
			for _, t := range g.Taints {
				of.Taints = append(of.Taints, Taint(t))
			}
			of.ids = ids[of.Place]
			all = append(all, of)
		}
	}
	return all
}

// uuids returns the UUIDs of the devices of each GPU.
func uuids(picture *clusterview.Cluster) map[Place]map[string]bool {
	ids := map[Place]map[string]bool{}
	for _, n := range picture.Nodes {
		for _, p := range n.Pools {
			for _, slice := range p.Slices() {
				for i := range slice.Spec.Devices {
					d := &slice.Spec.Devices[i]
					at := Place{n.Name, clusterview.NameOf(d.Name)}
					if ids[at] == nil {
						ids[at] = map[string]bool{}
					}
					ids[at][clusterview.Text(d, p.Driver, "uuid")] = true
				}
			}
		}
	}
	return ids
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
		if at := (Place{node, clusterview.NameOf(r.Device)}); at.Name != "" && !slices.Contains(gpus, at) {
			gpus = append(gpus, at)
		}
	}
	return gpus
}
