package gpus

import (
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// gpuJSON is a GPU of the map for programs.
type gpuJSON struct {
	Node          string         `json:"node"`
	GPU           string         `json:"gpu"`
	UUID          string         `json:"uuid"`
	Index         *int64         `json:"index,omitempty"`
	Product       string         `json:"product,omitempty"`
	DriverVersion string         `json:"driverVersion,omitempty"`
	Bar           string         `json:"bar"`
	Memory        int64          `json:"memoryBytes"`
	Free          int64          `json:"freeBytes"`
	MemorySlices  int            `json:"memorySlices,omitempty"`
	Parts         []partJSON     `json:"parts,omitempty"`
	Devices       map[string]int `json:"devices,omitempty"`
	Taints        []taintJSON    `json:"taints,omitempty"`
}

// partJSON is an allocated device.
type partJSON struct {
	Device  string    `json:"device"`
	Type    string    `json:"type"`
	Profile string    `json:"profile,omitempty"`
	Start   int       `json:"start"`
	Size    int       `json:"size,omitempty"`
	Memory  int64     `json:"memoryBytes,omitempty"`
	Uses    []useJSON `json:"uses"`
}

// useJSON is a claim with a device or share.
type useJSON struct {
	Namespace string   `json:"namespace"`
	Claim     string   `json:"claim"`
	Request   string   `json:"request,omitempty"`
	Pods      []string `json:"pods,omitempty"`
	ShareID   string   `json:"shareID,omitempty"`
	Memory    int64    `json:"memoryBytes,omitempty"`
}

type taintJSON struct {
	Key     string       `json:"key"`
	Value   string       `json:"value,omitempty"`
	Effect  string       `json:"effect"`
	Since   *metav1.Time `json:"since,omitempty"`
	Devices int          `json:"devices"`
}

func gpusJSON(gpus []*clusterview.GPU) []gpuJSON {
	all := make([]gpuJSON, 0, len(gpus))
	for _, g := range gpus {
		out := gpuJSON{
			Node: g.Node.Name, GPU: g.Name, UUID: g.UUID, Index: g.Index, Product: g.Product, DriverVersion: g.DriverVersion, Bar: bar(g),
			Memory: g.Memory, Free: g.Free, MemorySlices: g.MemorySlices, Devices: g.Devices,
		}
		for i := range g.Parts {
			p := &g.Parts[i]
			part := partJSON{Device: p.Device, Type: p.Type, Profile: p.Profile, Start: p.Start, Size: p.Size, Memory: p.Memory}
			for _, use := range p.Uses {
				part.Uses = append(part.Uses, newUseJSON(use.Claim, use.Result))
			}
			out.Parts = append(out.Parts, part)
		}
		for _, t := range g.Taints {
			out.Taints = append(out.Taints, taintJSON(t))
		}
		all = append(all, out)
	}
	return all
}

func newUseJSON(claim *clusterview.Claim, r *resourceapi.DeviceRequestAllocationResult) useJSON {
	use := useJSON{Namespace: claim.Namespace, Claim: claim.Name, Request: r.Request, Pods: podNames(claim)}
	if r.ShareID != nil {
		use.ShareID = string(*r.ShareID)
	}
	if memory, ok := r.ConsumedCapacity["memory"]; ok {
		use.Memory = memory.Value()
	}
	return use
}
