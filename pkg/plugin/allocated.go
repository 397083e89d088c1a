package plugin

import (
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
)

// permitTime is how long a claim whose device is not advertised any more is retried after its allocation. Schedulers that wait for all pods of
// a group hold them at Permit for minutes, and write the allocation after that.
const permitTime = 10 * time.Minute

// recentlyAllocated implements claim.Source.Recent.
func recentlyAllocated(now func() time.Time) func(*resourceapi.ResourceClaim) bool {
	return func(rc *resourceapi.ResourceClaim) bool { return now().Sub(allocatedAt(rc)) < permitTime }
}

// allocatedAt is when the scheduler wrote the claim's allocation. API servers without the feature gate DRADeviceBindingConditions do not store
// that: there it is the last time at which an allocation, or the pods that it is reserved for, were written, and no earlier than the claim.
func allocatedAt(rc *resourceapi.ResourceClaim) time.Time {
	if rc.Status.Allocation != nil && rc.Status.Allocation.AllocationTimestamp != nil {
		return rc.Status.Allocation.AllocationTimestamp.Time
	}
	at := rc.CreationTimestamp.Time
	for i := range rc.ManagedFields {
		of := &rc.ManagedFields[i]
		if of.Time != nil && of.Time.After(at) && of.FieldsV1 != nil && strings.Contains(of.FieldsV1.GetRawString(), `"f:allocation"`) {
			at = of.Time.Time
		}
	}
	return at
}
