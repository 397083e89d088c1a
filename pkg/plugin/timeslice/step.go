package timeslice

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Tool sets time-slice intervals; nvsmi.Tool implements it. Its errors are errors of package gpu.
type Tool interface {
	SetTimeslice(ctx context.Context, id gpu.UUID, interval gpu.Interval) error
}

// Step sets the time-slice interval of a claim's exclusive GPU. It is a prepare.Step of kind claim.StepInterval. Do and Undo cost one
// run of the tool each.
type Step struct {
	Tool  Tool
	Store *Store
}

// Do sets the interval in the step's arguments.
func (s Step) Do(ctx context.Context, step checkpoint.Step) (json.RawMessage, error) {
	wanted, err := claim.ParseInterval(step.Args)
	if err != nil {
		return nil, err
	}
	if err := s.Store.setClaim(step.Target, wanted.Interval); err != nil {
		return nil, err
	}
	err = s.Tool.SetTimeslice(ctx, step.Target, wanted.Interval)
	if refused(err) {
		err = errors.Join(err, s.Store.setClaim(step.Target, "")) // otherwise Undo would run the tool, which would fail again
	}
	return nil, err
}

// Undo sets the interval that the GPU has without the claim. Without a record of the claim's interval it does nothing.
func (s Step) Undo(ctx context.Context, step checkpoint.Step) error {
	found, err := s.Store.get(step.Target)
	if err != nil || found.claim == "" {
		return err
	}
	if err := s.Tool.SetTimeslice(ctx, step.Target, found.withoutClaim()); err != nil {
		return err
	}
	return s.Store.setClaim(step.Target, "")
}

// Find lists the GPUs with the interval of a claim.
func (s Step) Find(context.Context) ([]checkpoint.Step, error) {
	claimed, err := s.Store.claimed()
	found := make([]checkpoint.Step, 0, len(claimed))
	for _, id := range claimed {
		found = append(found, checkpoint.Step{Kind: claim.StepInterval, Target: id})
	}
	return found, err
}

// Names returns true: steps of this kind are identified by their GPU alone, which has one interval.
func (Step) Names(_, _ checkpoint.Step) bool { return true }

// withoutClaim is the interval that applies when no claim sets one.
func (r record) withoutClaim() gpu.Interval {
	if r.node == "" {
		return gpu.IntervalDefault
	}
	return r.node
}

// refused reports whether the error means that the tool has certainly set nothing.
func refused(err error) bool {
	if _, unsupported := errors.AsType[*gpu.UnsupportedError](err); unsupported {
		return true
	}
	refusals := []error{gpu.ErrPermission, gpu.ErrNotFound, gpu.ErrDriverNotLoaded, gpu.ErrLost, gpu.ErrInUse}
	return slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) })
}
