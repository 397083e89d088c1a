package prepare

import (
	"context"
	"errors"
	"sync"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Recover finishes the unfinished work of another process: intents are undone, pending cleanups are retried, specs of this boot's claims are verified
// and made again. Records of an earlier boot wait for their Prepare or Unprepare, except for pending cleanups and intents. It tries
// once for each claim and may run while calls are in flight: each claim is read again under its lock. Claims on different GPUs do not
// wait for each other. Records are read again, so that this process reports the pending cleanups of others. The errors are one per
// claim that could not be recovered.
func (t *Transaction) Recover(ctx context.Context) error {
	records, unreadable := t.guard.All()
	failed := make([]error, len(records))
	var recovering sync.WaitGroup
	for i, r := range records {
		if r.State == checkpoint.Done && r.BootID != t.options.BootID {
			continue
		}
		recovering.Go(func() {
			if err := t.recoverClaim(ctx, r.Claim.UID); err != nil {
				failed[i] = OfClaim("recovering", r.Claim, err)
			}
		})
	}
	if unreadable == nil { // the earlier state is more complete than a part of the records
		for _, id := range t.guard.Differing(records) {
			recovering.Go(func() { t.reload(ctx, id) })
		}
	}
	recovering.Wait()
	return errors.Join(append(failed, unreadable)...)
}

func (t *Transaction) recoverClaim(ctx context.Context, uid string) error {
	ctx, cancel := withBudget(ctx, t.options.RetryBudget)
	defer cancel()
	unlock, err := t.guard.LockClaim(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := t.guard.Load(uid)
	switch {
	case err != nil || r == nil:
		return err
	case r.State != checkpoint.Done:
		return t.rollback.release(ctx, r)
	case r.BootID == t.options.BootID:
		return t.execution.specs.renew(r)
	default:
		return nil
	}
}

// reload reads again which claims own a GPU. It returns no error: a call that uses the GPU gets the same error, and reports it for
// its claim.
func (t *Transaction) reload(ctx context.Context, id gpu.UUID) {
	ctx, cancel := withBudget(ctx, t.options.RetryBudget)
	defer cancel()
	uuids := []gpu.UUID{id}
	t.guard.Invalidate(uuids)
	if unlock, err := t.guard.Lock(ctx, uuids); err == nil {
		unlock()
	}
}
