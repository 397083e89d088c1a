package null

import (
	"context"
	"encoding/json"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Marks marks GPUs. Both calls are idempotent.
type Marks interface {
	// Mark marks a GPU, Unmark removes the mark.
	Mark(ctx context.Context, id gpu.UUID) error
	Unmark(ctx context.Context, id gpu.UUID) error
}

// Step marks the GPU of a claim. It is a prepare.Step of kind StepKind.
type Step struct{ Marks Marks }

// Do marks the GPU.
func (s Step) Do(ctx context.Context, step checkpoint.Step) (json.RawMessage, error) {
	return nil, s.Marks.Mark(ctx, step.Target)
}

// Undo removes the mark.
func (s Step) Undo(ctx context.Context, step checkpoint.Step) error {
	return s.Marks.Unmark(ctx, step.Target)
}
