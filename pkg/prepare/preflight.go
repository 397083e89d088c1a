package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// ready brings about what the claim needs of its GPUs, and sees that nothing stands in the way of what it will make. Nothing is
// promised yet, and nothing of it is ever undone. The GPUs' locks are held.
func (t *Transaction) ready(ctx context.Context, r *checkpoint.Record, needs []claim.Need) error {
	if err := t.static(ctx, r); err != nil {
		return err
	}
	for _, n := range needs {
		need, known := t.Needs[n.Kind]
		if !known {
			return fmt.Errorf("preparing GPU %s: %w", n.Target, &gpu.UnsupportedError{Feature: "need " + n.Kind})
		}
		if err := need.Meet(ctx, n); err != nil {
			return refuse(r, n.Target, asRefusal(err))
		}
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		checker, ok := t.Steps[s.Kind].(Checker)
		if !ok {
			continue
		}
		if err := checker.Check(ctx, *s); err != nil {
			return refuseStep(r, s, err)
		}
	}
	return nil
}

// asRefusal is a need's own refusal, or one that says what the error says.
func asRefusal(err error) *claim.Refusal {
	if refusal, ok := errors.AsType[*claim.Refusal](err); ok {
		return refusal
	}
	return &claim.Refusal{Cause: err.Error(), Transient: transient(err), Err: err}
}

// refuseStep says which of the record's results cannot be made, where the step makes one.
func refuseStep(r *checkpoint.Record, s *checkpoint.Step, err error) error {
	if s.Device == "" {
		return err
	}
	refusal := &claim.Refusal{Device: s.Device, Cause: err.Error(), Transient: transient(err), Err: err}
	i := slices.IndexFunc(r.Results, func(result checkpoint.Result) bool {
		return result.Device == s.Device && result.GPUUUID == s.Target
	})
	if i >= 0 {
		refusal.Request = r.Results[i].Request
	}
	return refusal
}

// present tells whether an answered claim still has its effects, and what an administrator made for it. It waits for those who work on
// the GPUs: they show things in between.
func (t *Transaction) present(ctx context.Context, r *checkpoint.Record) (bool, error) {
	if !slices.ContainsFunc(r.Results, isStatic) &&
		!slices.ContainsFunc(r.Steps, func(s checkpoint.Step) bool { _, can := t.Steps[s.Kind].(Verifier); return can }) {
		return true, nil
	}
	unlock, err := t.lock(ctx, touched(r))
	if err != nil {
		return false, err
	}
	defer unlock()
	switch err := t.static(ctx, r); {
	case errors.Is(err, gpu.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		verifier, can := t.Steps[s.Kind].(Verifier)
		if !can {
			continue
		}
		switch err := verifier.Verify(ctx, *s); {
		case errors.Is(err, gpu.ErrNotFound):
			return false, nil
		case err != nil:
			return false, refuseStep(r, s, err)
		}
	}
	return true, nil
}
