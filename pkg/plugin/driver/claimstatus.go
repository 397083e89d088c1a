package driver

import (
	"errors"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// ClaimStatus reports into ResourceClaim.status.devices.
type ClaimStatus struct {
	Statuses *kube.Statuses
	// Node returns the current state of the node.
	Node func() *gpu.Node
	// StepData returns additional data from the steps of a record for each result, in the order of the results; nil: no data.
	StepData func(r *checkpoint.Record) []map[string]any
	// Extensions extend the status of records that contain their data, in this order.
	Extensions []StatusExtension
	// Conditions are the sources of conditions about prepared claims, besides the extensions.
	Conditions []ConditionSource
}

// ConditionSource returns a condition of each result of a record, in the order of the results; nil for a result without a problem, and nil if
// no result has one.
type ConditionSource func(r *checkpoint.Record) []*kube.Condition

// OfRecord is a ConditionSource with the same condition of all results.
func OfRecord(of func(r *checkpoint.Record) *kube.Condition) ConditionSource {
	return func(r *checkpoint.Record) []*kube.Condition {
		condition := of(r)
		if condition == nil {
			return nil
		}
		return slices.Repeat([]*kube.Condition{condition}, len(r.Results))
	}
}

// StatusExtension is an extension that extends the status of claims. It only gets results with its data.
type StatusExtension interface {
	// Kind is the key of its data in records.
	Kind() string
	// StatusData is added to the data of a result, except for keys that are already set.
	StatusData(node *gpu.Node, r *checkpoint.Record, result *checkpoint.Result) map[string]any
	// ConditionTypes are the types of its conditions.
	ConditionTypes() []string
	// StatusConditions are added to the conditions of each result with its data.
	StatusConditions(r *checkpoint.Record) []kube.Condition
}

// Refusing is a StatusExtension with a condition for claims that are refused because of it.
type Refusing interface {
	StatusExtension
	// RefusedCondition is the type of the condition; it is False with the reason of the refusal.
	RefusedCondition() string
}

// Prepared reports the GPU of every device.
func (s ClaimStatus) Prepared(r *checkpoint.Record) { s.ContainerRefused(r, "", "") }

// ContainerRefused is Prepared if a container with the device of that name in the CDI spec is not started, with the reason.
func (s ClaimStatus) ContainerRefused(r *checkpoint.Record, device, why string) {
	node := s.Node()
	extra := make([]map[string]any, len(r.Results))
	if s.StepData != nil {
		extra = s.StepData(r)
	}
	problems := s.problems(r)
	conditionsOf := map[string][]kube.Condition{}
	for _, e := range s.Extensions {
		if r.Extended(e.Kind()) {
			conditionsOf[e.Kind()] = e.StatusConditions(r)
		}
	}
	devices := make([]kube.Device, 0, len(r.Results))
	for i := range r.Results {
		result := &r.Results[i]
		data := s.data(node, r, result, extra[i])
		var conditions []kube.Condition
		for _, e := range s.Extensions {
			if result.Extensions.Has(e.Kind()) {
				conditions = append(conditions, conditionsOf[e.Kind()]...)
			}
		}
		devices = append(devices, kube.Device{
			Pool: result.Pool, Name: result.Device, ShareID: types.UID(result.ShareID), Identity: identity(node, result), Incomplete: node.Driver.Version == "",
			Extra: data, Conditions: append(conditions, problems[i]...),
		})
	}
	if at := slices.Index(r.CDI.Devices, device); at >= 0 {
		devices[at].Refused = why
	}
	s.Statuses.Ready(kube.ClaimRef{Namespace: r.Claim.Namespace, Name: r.Claim.Name, UID: types.UID(r.Claim.UID)}, devices)
}

// problems are the conditions of each result from the sources.
func (s ClaimStatus) problems(r *checkpoint.Record) [][]kube.Condition {
	of := make([][]kube.Condition, len(r.Results))
	for _, source := range s.Conditions {
		for i, c := range source(r) {
			if c != nil {
				of[i] = append(of[i], *c)
			}
		}
	}
	return of
}

// data is the data from steps, and from the extensions with data in a result.
func (s ClaimStatus) data(node *gpu.Node, r *checkpoint.Record, result *checkpoint.Result, data map[string]any) map[string]any {
	for _, e := range s.Extensions {
		if !result.Extensions.Has(e.Kind()) {
			continue
		}
		merged := maps.Clone(e.StatusData(node, r, result))
		if merged == nil {
			merged = map[string]any{}
		}
		maps.Copy(merged, data)
		data = merged
	}
	return data
}

// Refused reports for every device of this driver why the claim cannot be used.
func (s ClaimStatus) Refused(rc *resourceapi.ResourceClaim, cause error) {
	var conditions []kube.Condition
	refusal, ok := errors.AsType[*claim.Refusal](cause)
	for _, extension := range s.Extensions {
		if e, refusing := extension.(Refusing); ok && refusing && refusal.Condition != "" && refusal.Extension == e.Kind() {
			conditions = append(conditions, kube.Condition{Type: e.RefusedCondition(), Reason: refusal.Condition, Message: refusal.Error()})
		}
	}
	s.Statuses.Failed(kube.ClaimRef{Namespace: rc.Namespace, Name: rc.Name, UID: rc.UID}, nil, cause.Error(), conditions...)
}

// identity is the hardware of a result; for a GPU that is gone, the identity in the record.
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
