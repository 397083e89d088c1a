package kube

import (
	"k8s.io/apimachinery/pkg/types"
)

// Claim says which ResourceClaim is meant: one of the same name with another UID is another claim.
type Claim struct {
	Namespace, Name string
	UID             types.UID
}

// String is "<namespace>/<name>".
func (c Claim) String() string { return c.Namespace + "/" + c.Name }

// Device is one of our devices in a claim's allocation, and what stands behind it.
type Device struct {
	// Pool and Name are the allocation result's.
	Pool, Name string
	// ShareID is the allocation result's, empty for a device that is not shared.
	ShareID types.UID
	// Identity tells which hardware it is. Nil, where that is not known, keeps what the claim says.
	Identity *Identity
	// Extra is what else the status says of the device in `data`. A key of Identity counts before one of Extra.
	Extra map[string]any
}

// Identity is what a claim's status says about a device in `data`: enough to find the hardware, on the node and in the
// records of whoever runs it. A monitor device has no UUID, index, minor, address and product, but GPUs. The JSON keys are API.
type Identity struct {
	// Type is the device's `type` attribute.
	Type string `json:"type"`
	// UUID is what programs in the container see: the GPU's, or the MIG device's.
	UUID string `json:"uuid,omitempty"`
	// GPUs are the UUIDs of the GPUs that a monitor device showed when the claim was prepared.
	GPUs []string `json:"gpus,omitempty"`
	// ParentUUID is the physical GPU's where UUID is not.
	ParentUUID string `json:"parentUUID,omitempty"`
	// Profile and Placement say which part of the GPU a MIG device is: "1g.10gb", in memory slices.
	Profile   string     `json:"profile,omitempty"`
	Placement *Placement `json:"placement,omitempty"`
	// Replicas and ShareName are set where several claims may use the device at once: how many, and what an administrator calls the
	// shares.
	Replicas  int    `json:"replicas,omitempty"`
	ShareName string `json:"shareName,omitempty"`
	// Index is NVML's index of the GPU, Minor the number in /dev/nvidia<minor>.
	Index *int `json:"index,omitempty"`
	Minor *int `json:"minor,omitempty"`
	// PCIBusID is the GPU's PCI address, "0000:3b:00.0".
	PCIBusID string `json:"pciBusID,omitempty"`
	// ProductName is the GPU's, DriverVersion that of the driver which served the node at the time.
	ProductName   string `json:"productName,omitempty"`
	DriverVersion string `json:"driverVersion"`
}

// Placement is a stretch of a GPU's memory slices.
type Placement struct {
	Start int `json:"start"`
	Size  int `json:"size"`
}

// deviceKey is what tells devices of one driver in one claim apart.
type deviceKey struct {
	pool, name string
	shareID    types.UID
}

func (d Device) key() deviceKey { return deviceKey{pool: d.Pool, name: d.Name, shareID: d.ShareID} }
