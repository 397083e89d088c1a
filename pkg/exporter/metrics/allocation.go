package metrics

import (
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Allocations lists the containers that use the node's devices. It is immutable after it is handed on.
type Allocations struct {
	// Generation grows with each change.
	Generation uint64
	// List is sorted by claim UID and result.
	List []Allocation
	// PodLabels are values of the labels in Exporter.PodLabels, in the same order, by the UID of the pod; empty if the pod does not set the
	// label. Pods with unknown labels are missing.
	PodLabels map[string][]string
}

// Allocation is one result of a prepared claim: a device and its containers. Additional devices and results with admin access are excluded.
type Allocation struct {
	Namespace, Claim, ClaimUID string
	// Request, Pool, Device and ShareID are as in the status of the claim.
	Request, Pool, Device, ShareID string
	Type                           gpu.DeviceType
	GPU                            gpu.UUID
	// ThroughServer is set if the containers use the device as clients of a server process, as with MPS.
	ThroughServer bool
	// MIG is the MIG device's UUID; empty for a whole GPU or a share of one.
	MIG gpu.UUID
	// Containers are the containers that use the device, sorted by pod and container. There are several if pods or containers share the claim.
	Containers []Container
	Options    gpu.MetricsOptions
	// Since is the time when the claim was first known to be prepared; earlier values of the GPU concern other claims. Zero: before any round.
	Since time.Time
}

// Exclusive reports whether only this claim can use the device, so that its values belong to its containers.
func (a *Allocation) Exclusive() bool { return a.ShareID == "" }

// Container is a container of a pod.
type Container struct {
	Namespace, Pod, PodUID, Name string
	// ID is the runtime's id; empty while it is unknown.
	ID string
}
