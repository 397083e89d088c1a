package prepare

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Settle finishes what another process left: intents are undone, debts are paid, specs of this boot's claims are verified
// and made again. Records of an earlier boot wait for their Prepare or Unprepare, but for their debts and intents. It tries
// once for each claim and may run beside calls: each claim is looked at anew under its lock. Claims on different GPUs do not
// wait for each other. What another process changed is learned, so that the GPUs that are owed are told by who settles. The
// errors are one per claim that could not be settled.
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
	if unread == nil { // what is known is better than a part of the records
		for _, id := range t.holders.differing(records) {
			settling.Go(func() { t.learn(ctx, id) })
		}
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

// learn reads anew who holds a GPU. It tells no error: who needs the GPU meets the same, and can tell whom it concerns.
func (t *Transaction) learn(ctx context.Context, id gpu.UUID) {
	ctx, cancel := t.within(ctx)
	defer cancel()
	uuids := []gpu.UUID{id}
	t.holders.distrust(uuids)
	if unlock, err := t.lock(ctx, uuids); err == nil {
		unlock()
	}
}
