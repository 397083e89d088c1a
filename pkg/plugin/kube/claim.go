package kube

import (
	"k8s.io/apimachinery/pkg/types"
)

// ClaimRef identifies a ResourceClaim. Another UID with the same name is another claim.
type ClaimRef struct {
	Namespace, Name string
	UID             types.UID
}

// String is "<namespace>/<name>".
func (c ClaimRef) String() string { return c.Namespace + "/" + c.Name }

// Device is an allocated device of this driver in a claim, and its hardware.
type Device struct {
	// Pool and Name are copied from the allocation result.
	Pool, Name string
	// ShareID is copied from the allocation result, empty for a device that is not shared.
	ShareID types.UID
	// Identity identifies the hardware. Nil if it is unknown: the data in the claim's status is kept.
	Identity *Identity
	// Incomplete: no driver is loaded, so Identity lacks facts. The data in the claim's status is kept if there is any.
	Incomplete bool
	// Extra is additional `data` in the status of the device. A key of Identity overrides a key of Extra.
	Extra map[string]any
	// Conditions are conditions besides ConditionReady. Their types are in StatusesOptions.
	Conditions []Condition
	// Refused is the reason why a container with the prepared device is not started; empty if none was refused.
	Refused string
}

// Condition is a condition of a device.
type Condition struct {
	Type string
	True bool
	// Unknown: its status is neither True nor False.
	Unknown bool
	// Reason is in CamelCase; Message is a sentence.
	Reason, Message string
}

// SchemaVersion is the version of the driver's output for programs: the `data` of a device in a claim's status, and the attributes in files
// of device metadata. It rises if a key is removed or changes its meaning, but not if a key is added.
const SchemaVersion = 1

// Identity is the `data` of a device in a claim's status, beside SchemaVersion. It identifies the hardware on the node and in an operator's
// inventory. A monitor device lists GPUs instead of UUID, index, minor, PCI address and product name. The JSON keys are API.
type Identity struct {
	// Type is the device's `type` attribute.
	Type string `json:"type"`
	// UUID is the UUID visible in the container: of the GPU or of the MIG device.
	UUID string `json:"uuid,omitempty"`
	// GPUs are the UUIDs of the GPUs that a monitor device covered when the claim was prepared.
	GPUs []string `json:"gpus,omitempty"`
	// ParentUUID is the UUID of the physical GPU of a MIG device.
	ParentUUID string `json:"parentUUID,omitempty"`
	// Profile ("1g.10gb") and Placement (in memory slices) describe a MIG device.
	Profile   string     `json:"profile,omitempty"`
	Placement *Placement `json:"placement,omitempty"`
	// Replicas and ShareName are set for a device that several claims may share: the maximum number of shares, and their name in the node
	// configuration.
	Replicas  int    `json:"replicas,omitempty"`
	ShareName string `json:"shareName,omitempty"`
	// Index is the GPU's NVML index, Minor the number in /dev/nvidia<minor>.
	Index *int `json:"index,omitempty"`
	Minor *int `json:"minor,omitempty"`
	// PCIBusID is the GPU's PCI address, "0000:3b:00.0".
	PCIBusID string `json:"pciBusID,omitempty"`
	// ProductName is the GPU's product name, DriverVersion the version of the NVIDIA driver at that time.
	ProductName   string `json:"productName,omitempty"`
	DriverVersion string `json:"driverVersion"`
}

// Placement is a range of a GPU's memory slices.
type Placement struct {
	Start int `json:"start"`
	Size  int `json:"size"`
}

// deviceKey identifies a device of one driver in one claim.
type deviceKey struct {
	pool, name string
	shareID    types.UID
}

func (d Device) key() deviceKey { return deviceKey{pool: d.Pool, name: d.Name, shareID: d.ShareID} }
