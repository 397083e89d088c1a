package metrics

import (
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Allocations say which containers have which of the node's devices. Nothing of it changes any more once it is handed on.
type Allocations struct {
	// Generation grows with each change.
	Generation uint64
	// List is sorted by claim UID and result.
	List []Allocation
	// PodLabels are values of the labels in Exporter.PodLabels, in their order, by the UID of the pod; empty where the pod does not have the label.
	// A pod whose labels are not known is not in it.
	PodLabels map[string][]string
}

// Allocation is one result of a prepared claim: a device and the containers that have it. Monitor devices and results with admin access
// are none.
type Allocation struct {
	Namespace, Claim, ClaimUID string
	// Request, Pool, Device and ShareID are as in the claim's status.
	Request, Pool, Device, ShareID string
	Type                           gpu.DeviceType
	GPU                            gpu.UUID
	// MPS says that its containers use the device as clients of an MPS server.
	MPS bool
	// MIG is the MIG device's UUID; empty for a whole GPU or a share of one.
	MIG gpu.UUID
	// Containers are those that have it, sorted by pod and container; several where pods or containers share the claim.
	Containers []Container
	Options    Options
	// Since is when the claim was first known to be prepared; what the GPU reported before concerns others. Zero: before any round.
	Since time.Time
}

// Exclusive says that no other claim can have the device: its values are those of its containers.
func (a *Allocation) Exclusive() bool { return a.ShareID == "" }

// Container is a container of a pod.
type Container struct {
	Namespace, Pod, PodUID, Name string
	// ID is the runtime's; empty as long as it is not known.
	ID string
}

// Options are the GPUMetricsConfig of a claim, as its record has it.
type Options struct {
	// Sets are added to those of the node for the device: "Basic", "Memory" and so on, as in the API.
	Sets []string `json:"sets"`
	// Interval is the longest time between samples that the claim accepts; 0 for the node's.
	Interval time.Duration     `json:"interval"`
	Labels   map[string]string `json:"labels"`
	// PerProcess splits the container's values by command.
	PerProcess bool `json:"perProcess"`
	// ExposeInContainer has the claim's metrics written where its containers read them.
	ExposeInContainer bool `json:"exposeInContainer"`
}
