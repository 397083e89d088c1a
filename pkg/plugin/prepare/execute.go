package prepare

import (
	"context"
	"fmt"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
)

// execution makes the effects of records. The GPUs' locks are held. After an error everything is undone at once.
type execution struct {
	guard   *ownership.Guard
	records Records
	steps   Steps
	specs   specSource
	cleanup *cleanup
}

// execute stores the record, and makes the effects. A record without effects is stored only by commit.
func (e execution) execute(ctx context.Context, r *checkpoint.Record) error {
	if len(r.Steps) == 0 {
		return nil
	}
	if err := e.records.Put(r); err != nil {
		// After a failed directory sync the record is there and may be lost in a power cut.
		return join(err, e.cleanup.removeLeftovers(r.Claim.UID))
	}
	e.guard.Put(r)
	return e.cleanup.after(ctx, r, e.steps.do(ctx, r))
}

// do makes the effects in order. After an error the record names those that were begun: an effect in the place of a
// step that was not begun is of another origin.
func (steps Steps) do(ctx context.Context, r *checkpoint.Record) error {
	for i := range r.Steps {
		s := &r.Steps[i]
		step, known := steps[s.Kind]
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

// identify records which device a step has made, and names it in the answer.
func identify(r *checkpoint.Record, s *checkpoint.Step, step Step) error {
	maker, ok := step.(Maker)
	i := r.MIGResultOf(s)
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
