package prepare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Unprepare takes back what Prepare did for the claim. A claim that was never prepared is no error. While effects cannot be
// undone it returns errors, so that the pod stays; after DebtAfter it returns nil and leaves a debt, so that a broken GPU
// holds no pod hostage.
func (t *Transaction) Unprepare(ctx context.Context, uid string) error {
	release, err := t.Locks.Claim(ctx, uid)
	if err != nil {
		return err
	}
	defer release()

	r, err := t.Records.Load(uid)
	if errors.Is(err, gpu.ErrNotFound) || errors.Is(err, checkpoint.ErrDamaged) {
		t.holders.remove(uid)
		return errors.Join(t.Specs.Remove(uid), t.sweep(uid, err))
	}
	if err != nil {
		return err
	}
	err = t.release(ctx, r)
	if err != nil && r.Debt != nil && t.settings.Now().Sub(r.Debt.Since) >= t.settings.DebtAfter {
		return nil
	}
	return err
}

// sweep removes what a power cut in the middle of a first Put left. A damaged record has been set aside under another name.
func (t *Transaction) sweep(uid string, cause error) error {
	if errors.Is(cause, checkpoint.ErrDamaged) {
		return t.Records.Delete(uid)
	}
	return nil
}

// release unwinds a record under the locks of its GPUs, trying until time is up. The claim's lock is held.
func (t *Transaction) release(ctx context.Context, r *checkpoint.Record) error {
	unlock, _, err := t.Locks.GPUs(ctx, r.GPUs())
	if err != nil {
		return err
	}
	defer unlock()
	if len(r.Steps) > 0 && r.State != checkpoint.Releasing && r.BootID == t.settings.BootID {
		r.State = checkpoint.Releasing
		if err := t.Records.Put(r); err != nil {
			return err
		}
		t.holders.put(r)
	}
	limit := t.settings.Now().Add(t.settings.Patience)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-margin).Before(limit) {
		limit = deadline.Add(-margin)
	}
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		err := t.unwind(ctx, r)
		if err == nil || !transient(err) || t.settings.Now().Add(wait).After(limit) {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// pay tries once to finish the release of another claim.
func (t *Transaction) pay(ctx context.Context, debtor checkpoint.Claim) error {
	unlock, err := t.Locks.Claim(ctx, debtor.UID)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := t.Records.Load(debtor.UID)
	if errors.Is(err, gpu.ErrNotFound) {
		t.holders.remove(debtor.UID)
		return nil
	}
	if err != nil {
		return err
	}
	if r.State != checkpoint.Releasing {
		t.holders.put(r)
		return nil
	}
	unlockGPUs, _, err := t.Locks.GPUs(ctx, r.GPUs())
	if err != nil {
		return err
	}
	defer unlockGPUs()
	if err := t.unwind(ctx, r); err != nil {
		return fmt.Errorf("%w: what claim %s/%s left cannot be undone yet: %w", gpu.ErrInUse, debtor.Namespace, debtor.Name, err)
	}
	return nil
}
