package prepare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Step is one kind of hardware effect. Both halves are idempotent.
type Step interface {
	// Do makes the effect that the step's Args ask for and says what it made, with an error too if there is something. What a call
	// that dies has made, Undo finds from the same step without Made.
	Do(ctx context.Context, s checkpoint.Step) (made json.RawMessage, err error)
	// Undo takes the effect back. Nothing to take back is no error.
	Undo(ctx context.Context, s checkpoint.Step) error
}

// Checker is a Step that can see, before anything is promised, that its effect cannot be made. What stands in its way then is
// certainly somebody else's.
type Checker interface {
	Step
	Check(ctx context.Context, s checkpoint.Step) error
}

// Verifier is a Step whose effect can vanish without being undone.
type Verifier interface {
	Step
	// Verify returns gpu.ErrNotFound when what Do made is not there any more.
	Verify(ctx context.Context, s checkpoint.Step) error
}

// Maker is a Step whose effect is an allocated MIG device.
type Maker interface {
	Step
	// Identify tells from what Do made which MIG device it is.
	Identify(made json.RawMessage) (gpu.MIGIdentity, error)
}

// Need brings about a state of a GPU that a claim needs and that is never taken back: it stays until a claim needs another.
type Need interface {
	Meet(ctx context.Context, n claim.Need) error
}

// undoTime bounds the undoing of a failed Prepare, which goes on when the caller's deadline has passed.
const undoTime = 20 * time.Second

// carryOut does what the record promises. On a failure everything is taken back at once. The GPUs' locks are held.
func (t *Transaction) carryOut(ctx context.Context, r *checkpoint.Record) error {
	if len(r.Steps) == 0 {
		spec, err := t.spec(r)
		if err != nil {
			return err // nothing was made or written
		}
		return t.orUndo(ctx, r, t.finish(r, spec))
	}
	if err := t.Records.Put(r); err != nil {
		// A failed directory sync leaves the record in place without the promise that it stays.
		return join(err, t.forget(r.Claim.UID))
	}
	t.holders.put(r)
	return t.orUndo(ctx, r, t.effects(ctx, r))
}

// effects makes the effects in order, and the answer.
func (t *Transaction) effects(ctx context.Context, r *checkpoint.Record) error {
	if err := t.do(ctx, r); err != nil {
		return err
	}
	spec, err := t.spec(r)
	if err != nil {
		return err
	}
	return t.finish(r, spec)
}

// orUndo undoes everything when there is an error.
func (t *Transaction) orUndo(ctx context.Context, r *checkpoint.Record, err error) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	return join(err, t.unwind(ctx, r))
}

// finish makes the answer: the done record durable, then the spec.
func (t *Transaction) finish(r *checkpoint.Record, spec *specs.Spec) error {
	r.State = checkpoint.Done
	if err := t.Records.Put(r); err != nil {
		return err
	}
	t.holders.put(r)
	return t.Specs.Write(r.Claim.UID, spec)
}

// join adds what went wrong in clearing up to what made it necessary, in one line.
func join(err, clearing error) error {
	if clearing == nil {
		return err
	}
	return fmt.Errorf("%w; undoing what was made: %w", err, clearing)
}

// do makes the effects in order. After an error the record names those that were begun: what a step that was not may find in its
// place is somebody else's.
func (t *Transaction) do(ctx context.Context, r *checkpoint.Record) error {
	for i := range r.Steps {
		s := &r.Steps[i]
		step, known := t.Steps[s.Kind]
		if !known {
			r.Steps = r.Steps[:i]
			return fmt.Errorf("making %s on GPU %s: %w", s.Kind, s.Target, &gpu.UnsupportedError{Feature: "step " + s.Kind})
		}
		made, err := step.Do(ctx, *s)
		s.Made = made
		if err != nil {
			r.Steps = r.Steps[:i+1]
			return refuseStep(r, s, fmt.Errorf("making %s on GPU %s: %w", s.Kind, s.Target, err))
		}
		if err := identify(r, s, step); err != nil {
			return fmt.Errorf("making %s on GPU %s: %w", s.Kind, s.Target, err)
		}
	}
	return nil
}

// identify notes which device a step has made, and names it in the answer.
func identify(r *checkpoint.Record, s *checkpoint.Step, step Step) error {
	maker, ok := step.(Maker)
	i := slices.IndexFunc(r.Results, func(result checkpoint.Result) bool {
		return result.Device == s.Device && result.GPUUUID == s.Target && result.MIG != nil && !result.Admin
	})
	if !ok || i < 0 {
		return nil
	}
	id, err := maker.Identify(s.Made)
	if err != nil {
		return err
	}
	r.Results[i].MIG.Identity = id
	r.CDI.Devices[i] = deviceName(r.Claim.UID, &r.Results[i])
	return nil
}

// unwind undoes the effects in reverse, then removes spec and record. What cannot be undone stays as a debt. The GPUs' locks
// are held.
func (t *Transaction) unwind(ctx context.Context, r *checkpoint.Record) error {
	all := r.Steps
	if err := t.takeBack(ctx, r); err != nil {
		return t.owe(r, all, err)
	}
	if err := t.Records.Delete(r.Claim.UID); err != nil {
		return err
	}
	t.holders.remove(r.Claim.UID)
	return nil
}

func (t *Transaction) takeBack(ctx context.Context, r *checkpoint.Record) error {
	if len(r.Steps) > 0 && r.BootID == t.settings.BootID { // effects do not outlive a boot
		whole := r.State == checkpoint.Done && !t.holders.releasing(r.Claim.UID)
		if r.State == checkpoint.Done {
			// From here on a crash must not leave a record that answers. A full disk is no reason to keep a pod: deleting
			// the record needs no space, and until then only that promise is missing.
			r.State = checkpoint.Releasing
			if err := t.Records.Put(r); err != nil && !errors.Is(err, syscall.ENOSPC) {
				return err
			}
		}
		if err := t.undo(ctx, r, whole); err != nil {
			return err
		}
	}
	return t.Specs.Remove(r.Claim.UID)
}

// undo takes the effects back in reverse, and leaves in the record those that are still there. Others may stand on an effect that
// cannot be undone, so nothing before it is touched, but for MIG devices: none stands on another. Whole: undoing has not begun yet.
func (t *Transaction) undo(ctx context.Context, r *checkpoint.Record, whole bool) error {
	var left []checkpoint.Step
	var failed []error
	alone := true // everything that failed
	for i := range slices.Backward(r.Steps) {
		s := r.Steps[i]
		_, device := t.Steps[s.Kind].(Maker)
		if len(failed) > 0 && (!alone || !device) {
			left = append(left, s)
			continue
		}
		if err := t.undoStep(ctx, r, s, whole); err != nil {
			s.Undo = err.Error()
			left, failed, alone = append(left, s), append(failed, fmt.Errorf("undoing %s on GPU %s: %w", s.Kind, s.Target, err)), alone && device
		}
	}
	slices.Reverse(left)
	r.Steps = left
	return inOne(failed)
}

func (t *Transaction) undoStep(ctx context.Context, r *checkpoint.Record, s checkpoint.Step, whole bool) error {
	step, known := t.Steps[s.Kind]
	if !known {
		return unknownStep(r, s.Kind)
	}
	s.Whole = whole
	return step.Undo(ctx, s)
}

// inOne puts several errors into one line; nil for none.
func inOne(errs []error) (err error) {
	for _, next := range errs {
		if err == nil {
			err = next
			continue
		}
		err = fmt.Errorf("%w; %w", err, next)
	}
	return err
}

// unknownStep says that a newer version made an effect of which this one knows nothing.
func unknownStep(r *checkpoint.Record, kind string) error {
	return &gpu.UnsupportedError{Feature: "step " + kind, Needs: fmt.Sprintf("version %s of the plugin, or a later one, on this node again", r.Writer)}
}

// debtError says that a claim's effects cannot be undone now, and since when.
type debtError struct {
	since time.Time
	cause error
}

func (e *debtError) Error() string { return e.cause.Error() }

func (e *debtError) Unwrap() error { return e.cause }

// owe stores that the record is a debt, since when and why. The record names what is left of all its steps: what these held is free
// when that is stored. It returns a *debtError.
func (t *Transaction) owe(r *checkpoint.Record, all []checkpoint.Step, cause error) error {
	now := t.settings.Now()
	debt := checkpoint.PendingCleanup{Since: now, Cause: cause.Error()}
	known := r.State == checkpoint.Releasing && r.PendingCleanup != nil && !r.PendingCleanup.Since.After(now) // a clock may have been set back
	if known {
		debt.Since = r.PendingCleanup.Since
	}
	stored := known && r.PendingCleanup.Cause == debt.Cause && len(r.Steps) == len(all)
	r.State, r.PendingCleanup = checkpoint.Releasing, &debt
	if !stored {
		if err := t.Records.Put(r); err != nil {
			cause = fmt.Errorf("%w; remembering that: %w", cause, err)
			r.Steps = all // as the next process will read it
		}
	}
	t.holders.put(r)
	return &debtError{since: debt.Since, cause: cause}
}

// spec builds the spec that the record promises. A device that cannot be given becomes a refusal in the claim's terms.
func (t *Transaction) spec(r *checkpoint.Record) (*specs.Spec, error) {
	o := cdi.Order{ClaimUID: r.Claim.UID, Kind: r.CDI.Kind}
	for i := range r.Results {
		ordered := cdi.Ordered{Name: r.CDI.Devices[i], GPU: r.Results[i].GPUUUID, Type: r.Results[i].Type}
		if r.Results[i].MIG != nil {
			ordered.MIG = r.Results[i].MIG.Identity
		}
		o.Devices = append(o.Devices, ordered)
	}
	spec, err := t.Specs.Build(o)
	if missing, ok := errors.AsType[*cdi.DeviceError](err); ok {
		refusal := &claim.Refusal{
			Cause: err.Error(), Transient: transient(err),
			Fix: "check the GPU on the node with nvidia-smi; nvidia-modprobe makes missing device nodes",
		}
		if i := slices.Index(r.CDI.Devices, missing.Device); i >= 0 {
			refusal.Request, refusal.Device = r.Results[i].Request, r.Results[i].Device
		}
		return nil, refusal
	}
	if err != nil {
		return nil, fmt.Errorf("%w; check the NVIDIA driver on the node with nvidia-smi", err)
	}
	return spec, nil
}
