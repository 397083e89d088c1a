package prepare

import (
	"context"
	"errors"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// Unprepare undoes Prepare of the claim. A claim that was never prepared is no error. While effects cannot be
// undone it returns errors, so that the pod stays; after DeferCleanupAfter it returns nil and leaves a pending cleanup, so that a broken
// GPU does not keep a pod from being deleted. A record that only a newer version may act on is such a pending cleanup, and stays as it
// is.
func (t *Transaction) Unprepare(ctx context.Context, uid string) error {
	ctx, cancel := withBudget(ctx, t.options.RetryBudget)
	defer cancel()
	unlock, err := t.guard.LockClaim(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = retry(ctx, nil, func() (*checkpoint.Record, error) {
		err := t.rollback.unprepare(ctx, uid, t.options.Now)
		if pending, ok := errors.AsType[*cleanupError](err); ok && t.options.Now().Sub(pending.since) >= t.options.DeferCleanupAfter {
			return nil, nil
		}
		return nil, err
	})
	return err
}

// unprepare tries once. The claim's lock is held.
func (b *rollback) unprepare(ctx context.Context, uid string, now func() time.Time) error {
	r, err := b.guard.Load(uid)
	if errors.Is(err, checkpoint.ErrDamaged) || err == nil && r == nil {
		return b.cleanup.removeLeftovers(uid)
	}
	if _, newer := errors.AsType[*checkpoint.NewerError](err); newer {
		// The failure is not stored, as the record is not overwritten; it blocks the GPU for other claims as long as it is there.
		since, _ := b.unable.LoadOrStore(uid, now())
		return &cleanupError{since: since.(time.Time), cause: err}
	}
	if err != nil {
		return err
	}
	return b.release(ctx, r)
}
