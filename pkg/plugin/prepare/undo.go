package prepare

import (
	"context"
	"fmt"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
)

// undoing removes the effects of records. The GPUs' locks are held.
type undoing struct {
	steps Steps
	guard *ownership.Guard
}

// undo removes the effects in reverse, and leaves in the record those that are still there. Another effect may depend on one that
// cannot be undone, so effects before it are kept, except for MIG devices, which do not depend on each other. Whole: undoing has not begun yet.
func (u undoing) undo(ctx context.Context, r *checkpoint.Record, whole bool) error {
	var left []checkpoint.Step
	var failed []error
	onlyDevices := true // among the failures
	for i, s := range slices.Backward(r.Steps) {
		_, device := u.steps[s.Kind].(Maker)
		if len(failed) > 0 && (!onlyDevices || !device) {
			left = append(left, s)
			continue
		}
		asked := s
		asked.Whole = whole
		if err := u.one(ctx, r, asked, r.Steps[:i]); err != nil {
			s.Undo = err.Error()
			left, failed = append(left, s), append(failed, fmt.Errorf("undoing %s on GPU %s: %w", s.Kind, s.Target, err))
			onlyDevices = onlyDevices && device
		}
	}
	slices.Reverse(left)
	r.Steps = left
	return inOneLine(failed)
}

// one removes one effect; before are the record's steps that are undone after it.
func (u undoing) one(ctx context.Context, r *checkpoint.Record, s checkpoint.Step, before []checkpoint.Step) (err error) {
	step, known := u.steps[s.Kind]
	if !known {
		return unknownStep(r, s.Kind)
	}
	if shared, can := step.(Shared); can {
		if s.Last, err = u.last(r, &s, shared, before); err != nil {
			return err
		}
	}
	return step.Undo(ctx, s)
}

// last reports whether no other step shares the effect, in this record or in another one. An error: the other records cannot be read, so
// that the effect may be theirs.
func (u undoing) last(r *checkpoint.Record, s *checkpoint.Step, shared Shared, before []checkpoint.Step) (bool, error) {
	if slices.ContainsFunc(before, func(o checkpoint.Step) bool { return o.Kind == s.Kind && o.Target == s.Target && shared.Same(o, *s) }) {
		return false, nil
	}
	if err := u.guard.Refresh(r.LockedGPUs()); err != nil {
		return false, err
	}
	return !u.guard.Shared(r, s, shared.Same), nil
}
