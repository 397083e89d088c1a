package prepare

import (
	"context"
	"fmt"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
)

// acquire takes the locks of the GPUs that the record owns or changes, finishes the pending cleanups that block it, and refuses a GPU
// that another claim owns.
func acquire(ctx context.Context, guard *ownership.Guard, rollback *rollback, r *checkpoint.Record) (unlock func(), err error) {
	for {
		unlock, err := guard.Lock(ctx, r.LockedGPUs())
		if err != nil {
			return nil, err
		}
		pending := guard.PendingCleanups(r)
		if len(pending) == 0 {
			err := unowned(guard, r)
			if err == nil {
				err = rollback.cleanup.steps.withinBounds(guard, r)
			}
			if err != nil {
				unlock()
				return nil, err
			}
			return unlock, nil
		}
		// A cleanup may be pending on more GPUs than these, and GPUs are locked all at once or not at all.
		unlock()
		for _, p := range pending {
			if err := rollback.retryCleanup(ctx, p.Claim); err != nil {
				return nil, &heldError{other: p.Claim, cause: err, refusal: refuseUse(r, p.GPU, p.Wanted, &claim.Refusal{
					Cause:     fmt.Sprintf("cleanup of GPU %s after an earlier claim is still pending", p.GPU),
					Fix:       "the log of the kubelet plugin on the node says why; check the GPU there with nvidia-smi, and reset it if this stays",
					Transient: true,
				})}
			}
		}
	}
}

// unowned refuses a GPU if another claim owns effects on it that the record is to own.
func unowned(guard *ownership.Guard, r *checkpoint.Record) error {
	conflict := guard.Conflict(r)
	if conflict == nil {
		return nil
	}
	return &heldError{other: conflict.Owner, released: conflict.Released, refusal: refuseUse(r, conflict.GPU, conflict.Wanted, &claim.Refusal{
		Cause: fmt.Sprintf("%s is still held by another claim", conflict.Wanted.On(conflict.GPU)),
		Fix: "if the pod of that claim was deleted by force, its containers may still be exiting; the log of the kubelet plugin on the node " +
			"names the claim",
		Transient: true,
	})}
}
