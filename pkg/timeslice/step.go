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

// Tool sets intervals; nvsmi.Tool is the real one. Its errors are those of package gpu.
type Tool interface {
	SetTimeslice(ctx context.Context, id gpu.UUID, interval gpu.Interval) error
}

// Step sets the interval of a GPU that a claim has for itself. It is a prepare.Step of kind claim.StepInterval, and costs one run of
// the tool to do and one to undo.
type Step struct {
	Tool  Tool
	Notes *Notes
}

// Do sets the interval that the step asks for.
func (s Step) Do(ctx context.Context, step checkpoint.Step) (json.RawMessage, error) {
	wanted, err := claim.ParseInterval(step.Args)
	if err != nil {
		return nil, err
	}
	if err := s.Notes.setClaim(step.Target, wanted.Interval); err != nil {
		return nil, err
	}
	err = s.Tool.SetTimeslice(ctx, step.Target, wanted.Interval)
	if refused(err) {
		err = errors.Join(err, s.Notes.setClaim(step.Target, "")) // or undoing would be refused too, for nothing
	}
	return nil, err
}

// Undo sets the interval that the GPU has without the claim. What was never begun, or is undone, is left alone.
func (s Step) Undo(ctx context.Context, step checkpoint.Step) error {
	known, err := s.Notes.of(step.Target)
	if err != nil || known.claim == "" {
		return err
	}
	if err := s.Tool.SetTimeslice(ctx, step.Target, known.without()); err != nil {
		return err
	}
	return s.Notes.setClaim(step.Target, "")
}

// Find lists the GPUs on which claims have set an interval.
func (s Step) Find(context.Context) ([]checkpoint.Step, error) {
	claimed, err := s.Notes.claimed()
	found := make([]checkpoint.Step, 0, len(claimed))
	for _, id := range claimed {
		found = append(found, checkpoint.Step{Kind: claim.StepInterval, Target: id})
	}
	return found, err
}

// Names is true: a GPU has one interval.
func (Step) Names(_, _ checkpoint.Step) bool { return true }

// without is the interval without a claim.
func (n note) without() gpu.Interval {
	if n.node == "" {
		return gpu.IntervalDefault
	}
	return n.node
}

// refused tells whether the tool certainly has set nothing.
func refused(err error) bool {
	if _, unsupported := errors.AsType[*gpu.UnsupportedError](err); unsupported {
		return true
	}
	refusals := []error{gpu.ErrPermission, gpu.ErrNotFound, gpu.ErrDriverNotLoaded, gpu.ErrLost, gpu.ErrInUse}
	return slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) })
}
