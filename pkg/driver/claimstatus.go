package driver

import (
	"errors"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/kube"
)

// ClaimStatus reports into ResourceClaim.status.devices.
type ClaimStatus struct {
	Statuses *kube.Statuses
	// Node says what the node has now.
	Node func() *gpu.Node
	// StepData returns what the steps of a record add to the data of each result, in the order of the results; nil: nothing.
	StepData func(r *checkpoint.Record) []map[string]any
	// Exporter: prism-exporter runs on the node.
	Exporter bool
	// Profile returns the conditions of a record that is profiled; nil: none.
	Profile func(r *checkpoint.Record) []kube.Condition
	// Injected returns the condition of a record whose devices containers do not get; nil: none.
	Injected func(r *checkpoint.Record) *kube.Condition
	// Library returns the digest of the library that containers of a profiled claim load; nil or "": it is not known.
	Library func(claimUID string) string
}

// Prepared says of every device which GPU it is.
func (s ClaimStatus) Prepared(r *checkpoint.Record) { s.ContainerRefused(r, "", "") }

// ContainerRefused is Prepared where a container with the device of that name in the CDI spec is not started, for this reason.
func (s ClaimStatus) ContainerRefused(r *checkpoint.Record, device, why string) {
	node := s.Node()
	extra := make([]map[string]any, len(r.Results))
	if s.StepData != nil {
		extra = s.StepData(r)
	}
	var profile []kube.Condition
	if s.Profile != nil {
		profile = s.Profile(r)
	}
	var injected *kube.Condition
	if s.Injected != nil {
		injected = s.Injected(r)
	}
	devices := make([]kube.Device, 0, len(r.Results))
	for i := range r.Results {
		result := &r.Results[i]
		devices = append(devices, kube.Device{
			Pool: result.Pool, Name: result.Device, ShareID: types.UID(result.ShareID), Identity: identity(node, result),
			Extra: s.withProfile(withMetrics(extra[i], node, result), r, result), Metrics: s.metrics(result),
			Injected: injected,
		})
		if result.Profiled {
			devices[i].Profile = profile
		}
	}
	if at := slices.Index(r.CDI.Devices, device); at >= 0 {
		devices[at].Refused = why
	}
	s.Statuses.Ready(kube.Claim{Namespace: r.Claim.Namespace, Name: r.Claim.Name, UID: types.UID(r.Claim.UID)}, devices)
}

// Refused says of every device of ours why the claim cannot be used.
func (s ClaimStatus) Refused(rc *resourceapi.ResourceClaim, cause error) {
	var profile []kube.Condition
	if refusal, ok := errors.AsType[*claim.Refusal](cause); ok && refusal.Profile != "" {
		profile = []kube.Condition{{Type: kube.ConditionProfilerReady, Reason: refusal.Profile, Message: refusal.Error()}}
	}
	s.Statuses.Failed(kube.Claim{Namespace: rc.Namespace, Name: rc.Name, UID: rc.UID}, nil, cause.Error(), profile...)
}

// identity is the hardware behind a result; of a GPU that is not there any more, what the record has of it.
func identity(node *gpu.Node, r *checkpoint.Result) *kube.Identity {
	id := &kube.Identity{Type: string(r.Type), UUID: string(r.GPUUUID), PCIBusID: r.PCIBusID, DriverVersion: node.Driver.Version}
	if r.MIG != nil {
		id.UUID, id.ParentUUID, id.Profile = string(r.MIG.Identity.UUID), string(r.GPUUUID), r.MIG.Name
		id.Placement = &kube.Placement{Start: r.MIG.Placement.Start, Size: r.MIG.Placement.Size}
	}
	if r.Share != nil {
		id.Replicas, id.ShareName = r.Share.Replicas, r.Share.Name
	}
	for i := range node.GPUs {
		g := &node.GPUs[i]
		switch {
		case g.UUID == r.GPUUUID:
			id.Index, id.Minor, id.PCIBusID, id.ProductName = new(g.Index), new(g.Minor), g.PCI.BusID, g.Product.Name
		case r.Type == gpu.TypeMonitor && r.GPUUUID == "":
			id.GPUs = append(id.GPUs, string(g.UUID))
		}
	}
	return id
}
