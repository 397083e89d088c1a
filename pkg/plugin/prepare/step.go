package prepare

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/prepare/gc"
)

// Step is one kind of hardware effect. Both halves are idempotent.
type Step interface {
	// Do makes the effect that the step's Args request and returns a description of the effect, with an error too if only a part was made.
	// After a process died in Do, Undo finds the effect from the same step without Made.
	Do(ctx context.Context, s checkpoint.Step) (made json.RawMessage, err error)
	// Undo removes the effect. An absent effect is no error.
	Undo(ctx context.Context, s checkpoint.Step) error
}

// Prechecker is a Step that can detect that its effect cannot be made before the preconditions of its GPU are ensured: it does not inspect
// the GPU.
type Prechecker interface {
	Step
	Precheck(ctx context.Context, s checkpoint.Step) error
}

// Checker is a Step that can detect, when the preconditions are ensured and before the record is stored, that its effect cannot be made. An
// effect that prevents it then is not the claim's own.
type Checker interface {
	Step
	Check(ctx context.Context, s checkpoint.Step) error
}

// Verifier is a Step whose effect can vanish without being undone.
type Verifier interface {
	Step
	// Verify returns gpu.ErrNotFound when the effect of Do is not there any more.
	Verify(ctx context.Context, s checkpoint.Step) error
}

// Shared is a Step whose effect several claims may share at once. Do makes the effect or finds it there. Undo removes it if the step is the
// Last with that effect; otherwise it removes only the claim's own part.
type Shared interface {
	Step
	// Same reports whether two steps of this kind on one GPU make the same effect.
	Same(a, b checkpoint.Step) bool
}

// Maker is a Step whose effect is an allocated MIG device.
type Maker interface {
	Step
	// Identify returns the identity of the MIG device that Do created.
	Identify(made json.RawMessage) (gpu.MIGIdentity, error)
}

// Finder is a Step whose leaked effects can be found.
type Finder interface {
	Step
	gc.Finder
}

// Bounded is a Step that several claims may use on one device, and whose sum the device bounds. The extension of the same kind keeps the
// amount of each result.
type Bounded interface {
	Step
	// Exceeded says how results with that data exceed the device's bounds, which the step contains; empty if they do not.
	Exceeded(s checkpoint.Step, results []json.RawMessage) (string, error)
}

// Editor is a Step that changes the containers of its device, or, without a device, of all devices of the claim on its GPU.
type Editor interface {
	Step
	// Edits returns the CDI edits of the effect, which has been made, for one device, the step's CDIDevice. It must return the same for
	// the same step: a lost spec is built again from it.
	Edits(s checkpoint.Step) (cdi.Edits, error)
}

// StatusReporter is a Step that describes its effect in the status of the claim.
type StatusReporter interface {
	Step
	// Status returns the effect's part of the data of its device's status.
	Status(s checkpoint.Step) map[string]any
}

// Measured is a Step with metrics of its own.
type Measured interface {
	Step
	// Metrics are the same in every call. Names with their labels are unique in the process, and names begin with "prism_".
	Metrics() []Metric
}

// Metric is one figure for Prometheus.
type Metric struct {
	Name, Help string
	// Labels are constant. Metrics of one name have the same help and the same keys of labels; nil for none.
	Labels map[string]string
	// Counter: it only rises; otherwise it is a gauge.
	Counter bool
	// Read returns the present value. It must be quick and must not block.
	Read func() float64
}

// Precondition ensures a state of a GPU that a claim requires. The state is not undone: it stays until a claim requires another.
type Precondition interface {
	Ensure(ctx context.Context, n claim.Precondition) error
}

// Steps are the kinds of steps by name.
type Steps map[string]Step

// verified reports whether the step's effect can be verified.
func (steps Steps) verified(s checkpoint.Step) bool {
	_, can := steps[s.Kind].(Verifier)
	return can
}

// unknownStep is the error of an effect of a kind that only a newer version supports.
func unknownStep(r *checkpoint.Record, kind string) error {
	return &gpu.UnsupportedError{Feature: "step " + kind, Needs: fmt.Sprintf("version %s of the plugin, or a later one, on this node again", r.Writer)}
}

// inOneLine puts several errors into one line; nil for none.
func inOneLine(errs []error) (err error) {
	for _, next := range errs {
		if err == nil {
			err = next
			continue
		}
		err = fmt.Errorf("%w; %w", err, next)
	}
	return err
}
