package prepare

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
)

// withheld refuses a plan that takes a GPU while the node's GPUs are withheld. A claim that has a record of this very allocation is
// prepared again: its containers may be running, and whatever else allocates the GPU met it there. Admin access takes no GPU.
func (t *Transaction) withheld(rc *resourceapi.ResourceClaim, r *checkpoint.Record, plan *claim.Plan) error {
	i := slices.IndexFunc(plan.Results, func(result claim.Result) bool { return !result.Admin })
	if t.settings.Withheld == nil || i < 0 {
		return nil
	}
	if r != nil && r.State == checkpoint.Done && slices.Equal(allocationKeys(r), t.Planner.AllocationKeys(rc)) {
		return nil
	}
	err := t.settings.Withheld()
	if err == nil {
		return nil
	}
	taken := &plan.Results[i]
	return &claim.Refusal{Request: taken.Request, Device: string(taken.Device.Name()), Cause: err.Error(), Transient: true, Err: err}
}
