package prepare

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// Settle finishes what an earlier process left: intents are undone, debts are paid, specs of this boot's claims are verified
// and made again. Records of an earlier boot wait for their Prepare or Unprepare, but for their debts and intents. It tries
// once for each claim and may run beside calls: each claim is looked at anew under its lock. Claims on different GPUs do not
// wait for each other. The errors are one per claim that could not be settled.
func (t *Transaction) Settle(ctx context.Context) error {
	records, damaged, unread := t.Records.All()
	t.report(damaged...)
	failed := make([]error, len(records))
	var settling sync.WaitGroup
	for i, r := range records {
		if r.State == checkpoint.Done && r.BootID != t.settings.BootID {
			continue
		}
		settling.Go(func() {
			if err := t.settle(ctx, r.Claim.UID); err != nil {
				failed[i] = fmt.Errorf("settling claim %s/%s: %w", r.Claim.Namespace, r.Claim.Name, err)
			}
		})
	}
	settling.Wait()
	return errors.Join(append(failed, unread)...)
}

func (t *Transaction) settle(ctx context.Context, uid string) error {
	ctx, cancel := t.within(ctx)
	defer cancel()
	unlock, err := t.Locks.Claim(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := t.load(uid)
	switch {
	case err != nil || r == nil:
		return err
	case r.State != checkpoint.Done:
		return t.release(ctx, r)
	case r.BootID == t.settings.BootID:
		return t.verify(r)
	default:
		return nil
	}
}
