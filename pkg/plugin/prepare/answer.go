package prepare

import (
	"context"
	"errors"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
)

// answers finds the answers of earlier calls.
type answers struct {
	guard  *ownership.Guard
	keys   Planner
	static staticMIG
	steps  Steps
	specs  specSource
	bootID string
}

// earlier is the record that an earlier call left of a claim.
type earlier struct {
	// record is nil without one.
	record *checkpoint.Record
	// sameAllocation: the record is of the claim's present allocation, possibly of another boot or with effects that are gone.
	sameAllocation bool
	// valid: the record is the answer.
	valid bool
	// outdated: the record was an answer, and does not match the allocation or the hardware any more.
	outdated bool
}

// answer finds the record of an earlier call, and whether it is still the answer. The claim's lock is held.
func (a answers) answer(ctx context.Context, rc *resourceapi.ResourceClaim) (e earlier, err error) {
	e.record, err = a.guard.Load(string(rc.UID))
	if errors.Is(err, checkpoint.ErrDamaged) {
		a.guard.Remove(string(rc.UID))
		return earlier{}, Redact("the record of the claim was damaged and is set aside; the next try prepares the claim again", err) // the cause may name another claim
	}
	if err != nil || e.record == nil || e.record.State != checkpoint.Done {
		return e, err
	}
	e.sameAllocation = slices.Equal(allocationKeys(e.record), a.keys.AllocationKeys(rc))
	e.outdated = !e.sameAllocation
	if e.sameAllocation && e.record.BootID == a.bootID {
		present, err := a.present(ctx, e.record)
		if err != nil {
			return earlier{}, err
		}
		if present {
			e.valid = true
			return e, a.specs.renew(e.record)
		}
		e.outdated = true
	}
	return e, nil
}

// present reports whether the effects and the pre-created MIG devices of an answered claim still exist. It waits for the GPUs' locks: work
// on a GPU shows intermediate states.
func (a answers) present(ctx context.Context, r *checkpoint.Record) (bool, error) {
	if !slices.ContainsFunc(r.Results, isStatic) && !slices.ContainsFunc(r.Steps, a.steps.verified) {
		return true, nil
	}
	unlock, err := a.guard.Lock(ctx, r.LockedGPUs())
	if err != nil {
		return false, err
	}
	defer unlock()
	switch err := a.static.check(ctx, r); {
	case errors.Is(err, gpu.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		verifier, can := a.steps[s.Kind].(Verifier)
		if !can {
			continue
		}
		switch err := verifier.Verify(ctx, *s); {
		case errors.Is(err, gpu.ErrNotFound):
			return false, nil
		case err != nil:
			return false, refuseStep(r, s, err)
		}
	}
	return true, nil
}

// allocationKeys are the record's results as the claim's allocation names them.
func allocationKeys(r *checkpoint.Record) []claim.AllocationKey {
	keys := make([]claim.AllocationKey, 0, len(r.Results))
	for i := range r.Results {
		p := &r.Results[i]
		keys = append(keys, claim.AllocationKey{Request: p.Request, Pool: p.Pool, Device: p.Device, ShareID: p.ShareID, Admin: p.Admin})
	}
	return keys
}
