package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// undoTime bounds the undoing of a failed Prepare, which goes on when the caller's deadline has passed.
const undoTime = 20 * time.Second

// effects stores the intent, makes the effects in order, and finishes. On a failure it undoes at once.
func (t *Transaction) effects(ctx context.Context, r *checkpoint.Record) error {
	if err := t.Records.Put(r); err != nil {
		return errors.Join(err, t.Records.Delete(r.Claim.UID))
	}
	t.holders.put(r)
	err := t.do(ctx, r)
	if err == nil {
		err = t.finish(r)
	}
	if err == nil {
		return nil
	}
	undoCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if undoErr := t.unwind(undoCtx, r); undoErr != nil {
		return fmt.Errorf("%w; undoing what was made: %w", err, undoErr)
	}
	return err
}

func (t *Transaction) do(ctx context.Context, r *checkpoint.Record) error {
	for i := range r.Steps {
		s := &r.Steps[i]
		step, known := t.Steps[s.Kind]
		if !known {
			return fmt.Errorf("making %s on GPU %s: %w", s.Kind, s.Target, &gpu.UnsupportedError{Feature: "step " + s.Kind})
		}
		made, err := step.Do(ctx, *s)
		if err != nil {
			return fmt.Errorf("making %s on GPU %s: %w", s.Kind, s.Target, err)
		}
		s.Made = made
	}
	return nil
}

// unwind undoes the effects in reverse, then removes spec and record. What cannot be undone stays as a debt. The GPUs'
// locks are held.
func (t *Transaction) unwind(ctx context.Context, r *checkpoint.Record) error {
	if r.BootID == t.settings.BootID { // effects do not outlive a boot
		if err := t.undo(ctx, r); err != nil {
			return errors.Join(err, t.owe(r, err))
		}
	}
	if err := t.Specs.Remove(r.Claim.UID); err != nil {
		return err
	}
	if err := t.Records.Delete(r.Claim.UID); err != nil {
		return err
	}
	t.holders.remove(r.Claim.UID)
	return nil
}

func (t *Transaction) undo(ctx context.Context, r *checkpoint.Record) error {
	for i := range slices.Backward(r.Steps) {
		s := &r.Steps[i]
		step, known := t.Steps[s.Kind]
		if !known {
			return fmt.Errorf("undoing %s on GPU %s: %w", s.Kind, s.Target, &gpu.UnsupportedError{Feature: "step " + s.Kind})
		}
		if err := step.Undo(ctx, *s); err != nil {
			s.Undo = err.Error()
			return fmt.Errorf("undoing %s on GPU %s: %w", s.Kind, s.Target, err)
		}
		s.Undo = ""
	}
	return nil
}

// owe stores that the record is a debt, since when and why.
func (t *Transaction) owe(r *checkpoint.Record, cause error) error {
	since := t.settings.Now()
	if r.Debt != nil {
		since = r.Debt.Since
	}
	r.State, r.Debt = checkpoint.Releasing, &checkpoint.Debt{Since: since, Cause: cause.Error()}
	t.holders.put(r)
	return t.Records.Put(r)
}
