package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
)

// rollback undoes records under the locks of their GPUs.
type rollback struct {
	cleanup *cleanup
	guard   *ownership.Guard
	// unable holds by claim UID since when this process has failed to unprepare a claim that a newer version prepared.
	unable *sync.Map
}

// incomplete undoes an earlier try whose record is not in state Done.
func (b *rollback) incomplete(ctx context.Context, e earlier) (earlier, error) {
	if e.record == nil || e.record.State == checkpoint.Done {
		return e, nil
	}
	if err := b.release(ctx, e.record); err != nil {
		return e, fmt.Errorf("undoing an earlier try: %w", err)
	}
	return earlier{}, nil
}

// outdated undoes an answer that does not match the allocation any more, once its replacement is planned.
func (b *rollback) outdated(ctx context.Context, e earlier) error {
	if !e.outdated {
		return nil
	}
	if err := b.release(ctx, e.record); err != nil {
		return fmt.Errorf("undoing the earlier preparation, which does not match the claim any more: %w", err)
	}
	return nil
}

// release undoes a record under the locks of its GPUs. The claim's lock is held, or the record is a pending cleanup that another claim's
// call retries: a record changes only under the locks of its GPUs.
func (b *rollback) release(ctx context.Context, r *checkpoint.Record) error {
	uuids := r.LockedGPUs()
	unlock, err := b.guard.LockOnly(ctx, uuids)
	if err != nil {
		return err
	}
	defer unlock()
	if r.State != checkpoint.Releasing {
		return b.cleanup.undo(ctx, r)
	}
	// The cleanup may have succeeded while this waited for the locks; another claim may own its GPU now.
	now, err := b.guard.Load(r.Claim.UID)
	switch {
	case errors.Is(err, checkpoint.ErrDamaged) || err == nil && now == nil:
		b.guard.Remove(r.Claim.UID)
		return nil
	case err != nil:
		return err
	case now.State != checkpoint.Releasing || !slices.Equal(now.LockedGPUs(), uuids):
		b.guard.Put(now)
		return nil
	}
	return b.cleanup.undo(ctx, now)
}

// retryCleanup tries once to finish the release of another claim. It takes only the locks of that claim's GPUs: a call that holds a
// claim's lock never waits for another claim's.
func (b *rollback) retryCleanup(ctx context.Context, pending checkpoint.Claim) error {
	r, err := b.guard.Load(pending.UID)
	switch {
	case errors.Is(err, checkpoint.ErrDamaged) || err == nil && r == nil:
		b.guard.Remove(pending.UID)
		return nil
	case err != nil:
		return err
	case r.State != checkpoint.Releasing:
		b.guard.Put(r)
		return nil
	}
	return b.release(ctx, r)
}
