package kube

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
)

// entryOf is the entry of a device in the status of a claim.
func entryOf(driverName string, d Device, conditions []metav1.Condition, data []byte) resourceapi.AllocatedDeviceStatus {
	entry := resourceapi.AllocatedDeviceStatus{Driver: driverName, Pool: d.Pool, Device: d.Name, Conditions: conditions}
	if d.ShareID != "" {
		entry.ShareID = new(string(d.ShareID))
	}
	if data != nil {
		entry.Data = &runtime.RawExtension{Raw: data}
	}
	return entry
}

// applied is the claim's status for an apply by this driver: only its own entries.
func applied(claim *resourceapi.ResourceClaim, entries []resourceapi.AllocatedDeviceStatus) *resourceapply.ResourceClaimApplyConfiguration {
	status := resourceapply.ResourceClaimStatus()
	for _, e := range entries {
		entry := resourceapply.AllocatedDeviceStatus().WithDriver(e.Driver).WithPool(e.Pool).WithDevice(e.Device)
		for _, c := range e.Conditions {
			entry.WithConditions(metaapply.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).
				WithMessage(c.Message).WithLastTransitionTime(c.LastTransitionTime))
		}
		if e.ShareID != nil {
			entry.WithShareID(*e.ShareID)
		}
		if e.Data != nil {
			entry.WithData(*e.Data)
		}
		status.WithDevices(entry)
	}
	return resourceapply.ResourceClaim(claim.Name, claim.Namespace).WithUID(claim.UID).WithStatus(status)
}

// updated is the claim with these entries, for an update of the whole claim. For an apply, the server encodes the claim as JSON with its
// own order of fields in opaque parameters. If a client wrote them in another order, as controllers do that encode a struct, the server
// sees a change of the allocation (observed with 1.37), which it refuses.
func (s *Statuses) updated(claim *resourceapi.ResourceClaim, entries []resourceapi.AllocatedDeviceStatus) *resourceapi.ResourceClaim {
	claim = claim.DeepCopy()
	for _, e := range entries {
		i := slices.IndexFunc(claim.Status.Devices, func(other resourceapi.AllocatedDeviceStatus) bool {
			return other.Driver == e.Driver && other.Pool == e.Pool && other.Device == e.Device && share(other) == share(e)
		})
		if i < 0 {
			claim.Status.Devices = append(claim.Status.Devices, e)
			continue
		}
		there := &claim.Status.Devices[i]
		kept := slices.DeleteFunc(there.Conditions, func(c metav1.Condition) bool {
			return slices.Contains(s.opts.Conditions, c.Type) || meta.FindStatusCondition(e.Conditions, c.Type) != nil
		})
		there.Conditions, there.Data = append(kept, e.Conditions...), e.Data
	}
	return claim
}

func share(e resourceapi.AllocatedDeviceStatus) string {
	if e.ShareID == nil {
		return ""
	}
	return *e.ShareID
}
