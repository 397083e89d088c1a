package prepare

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// Unprepare takes back what Prepare did for the claim. A claim that was never prepared is no error. While effects cannot be
// undone it returns errors, so that the pod stays; after DebtAfter it returns nil and leaves a debt, so that a broken GPU
// holds no pod hostage. A record that only a newer version may act on is such a debt, and stays as it is.
func (t *Transaction) Unprepare(ctx context.Context, uid string) error {
	ctx, cancel := t.within(ctx)
	defer cancel()
	unlock, err := t.Locks.Claim(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	return patiently(ctx, nil, func() error {
		err := t.clear(ctx, uid)
		if debt, ok := errors.AsType[*debtError](err); ok && t.settings.Now().Sub(debt.since) >= t.settings.DebtAfter {
			return nil
		}
		return err
	})
}

// clear tries once. The claim's lock is held.
func (t *Transaction) clear(ctx context.Context, uid string) error {
	r, err := t.load(uid)
	if errors.Is(err, checkpoint.ErrDamaged) || err == nil && r == nil {
		return t.forget(uid)
	}
	if _, newer := errors.AsType[*checkpoint.NewerError](err); newer {
		// The record says no debt, as it is not written over; the GPU is kept from others as long as it is there.
		since, _ := t.inVain.LoadOrStore(uid, t.settings.Now())
		return &debtError{since: since.(time.Time), cause: err}
	}
	if err != nil {
		return err
	}
	return t.release(ctx, r)
}

// forget removes what a crash may have left of a claim without a record: a spec, a record half written, or the removal of a
// record not yet durable. The claim's lock is held.
func (t *Transaction) forget(uid string) error {
	if err := t.Specs.Remove(uid); err != nil {
		return err
	}
	if err := t.Records.Delete(uid); err != nil {
		return err
	}
	t.holders.remove(uid)
	return nil
}

// release unwinds a record under the locks of its GPUs. The claim's lock is held, or the record is a debt that somebody else
// pays: a record changes only under the locks of its GPUs.
func (t *Transaction) release(ctx context.Context, r *checkpoint.Record) error {
	uuids := touched(r)
	unlock, foreign, err := t.Locks.GPUs(ctx, uuids)
	if err != nil {
		return err
	}
	defer unlock()
	if foreign {
		t.holders.distrust(uuids) // to be learned by who needs it: letting go needs no knowledge of others
	}
	if r.State != checkpoint.Releasing {
		return t.unwind(ctx, r)
	}
	// The debt may have been paid while this waited for the locks; its GPU may be somebody else's now.
	now, err := t.load(r.Claim.UID)
	switch {
	case errors.Is(err, checkpoint.ErrDamaged) || err == nil && now == nil:
		t.holders.remove(r.Claim.UID)
		return nil
	case err != nil:
		return err
	case now.State != checkpoint.Releasing || !slices.Equal(touched(now), uuids):
		t.holders.put(now)
		return nil
	}
	return t.unwind(ctx, now)
}

// pay tries once to finish the release of another claim. It takes only the locks of that claim's GPUs: whoever holds a
// claim's lock never waits for another claim's.
func (t *Transaction) pay(ctx context.Context, debtor checkpoint.Claim) error {
	r, err := t.load(debtor.UID)
	switch {
	case errors.Is(err, checkpoint.ErrDamaged) || err == nil && r == nil:
		t.holders.remove(debtor.UID)
		return nil
	case err != nil:
		return err
	case r.State != checkpoint.Releasing:
		t.holders.put(r)
		return nil
	}
	return t.release(ctx, r)
}
