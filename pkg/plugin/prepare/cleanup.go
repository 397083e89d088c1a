package prepare

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
)

// undoTime bounds the undoing of a failed Prepare, which goes on when the caller's deadline has passed.
const undoTime = 20 * time.Second

// cleanup undoes the effects of records, and removes specs and records. The GPUs' locks are held.
type cleanup struct {
	guard   *ownership.Guard
	records Records
	specs   extendedSpecs
	steps   Steps
	bootID  string
	now     func() time.Time
}

// undo undoes the effects in reverse, then removes spec and record. An effect that cannot be undone stays as a pending cleanup, which a
// *cleanupError reports.
func (c *cleanup) undo(ctx context.Context, r *checkpoint.Record) error {
	all := r.Steps
	if err := c.undoEffects(ctx, r); err != nil {
		return c.deferCleanup(r, all, err)
	}
	if err := c.records.Delete(r.Claim.UID); err != nil {
		c.guard.Put(r) // the record may be gone all the same: its part of shared effects is undone
		return err
	}
	c.guard.Remove(r.Claim.UID)
	return nil
}

func (c *cleanup) undoEffects(ctx context.Context, r *checkpoint.Record) error {
	if len(r.Steps) > 0 && r.BootID == c.bootID { // effects do not outlive a boot
		whole := r.State == checkpoint.Done && !c.guard.Releasing(r.Claim.UID)
		if r.State == checkpoint.Done {
			// From here on a record in state Done must not survive a crash. A full disk does not block the pod's deletion:
			// deleting the record needs no space, and until then only the state in the record is out of date.
			r.State = checkpoint.Releasing
			if err := c.records.Put(r); err != nil && !errors.Is(err, syscall.ENOSPC) {
				return err
			}
		}
		if err := (undoing{c.steps, c.guard}).undo(ctx, r, whole); err != nil {
			return err
		}
	}
	// Files of an extension outlive a boot, unlike effects.
	if err := c.specs.extensions.unknown(r); err != nil {
		return fmt.Errorf("removing the claim's effects: %w", err)
	}
	return c.specs.removeOf(r)
}

// after undoes everything when there is an error, and returns it.
func (c *cleanup) after(ctx context.Context, r *checkpoint.Record, err error) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	return join(err, c.undo(ctx, r))
}

// removeLeftovers removes the leftovers of a crash of a claim without a record: a spec, a record half written, or the removal of a record
// not yet durable. The claim's lock is held.
func (c *cleanup) removeLeftovers(uid string) error {
	if err := c.specs.Remove(uid); err != nil {
		return err
	}
	if err := c.records.Delete(uid); err != nil {
		return err
	}
	c.guard.Remove(uid)
	return nil
}

// deferCleanup stores that the record is a pending cleanup, since when and why. The record names its remaining steps: the devices of the
// other steps are free once it is stored. It returns a *cleanupError.
func (c *cleanup) deferCleanup(r *checkpoint.Record, all []checkpoint.Step, cause error) error {
	now := c.now()
	pending := checkpoint.PendingCleanup{Since: now, Cause: cause.Error()}
	known := r.State == checkpoint.Releasing && r.PendingCleanup != nil && !r.PendingCleanup.Since.After(now) // a clock may have been set back
	if known {
		pending.Since = r.PendingCleanup.Since
	}
	stored := known && r.PendingCleanup.Cause == pending.Cause && len(r.Steps) == len(all)
	r.State, r.PendingCleanup = checkpoint.Releasing, &pending
	if !stored {
		if err := c.records.Put(r); err != nil {
			cause = fmt.Errorf("%w; remembering that: %w", cause, err)
			r.Steps = all // as they stand on disk
		}
	}
	c.guard.Put(r)
	return &cleanupError{since: pending.Since, cause: cause}
}

// cleanupError is why a claim's effects cannot be undone now, and since when.
type cleanupError struct {
	since time.Time
	cause error
}

func (e *cleanupError) Error() string { return e.cause.Error() }

func (e *cleanupError) Unwrap() error { return e.cause }

// join adds the error of a cleanup to the error that made the cleanup necessary, in one line.
func join(err, cleanup error) error {
	if cleanup == nil {
		return err
	}
	return fmt.Errorf("%w; undoing the effects: %w", err, cleanup)
}
