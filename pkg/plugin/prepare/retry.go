package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// The waits between the tries of one call.
const (
	firstWait = 250 * time.Millisecond
	longWait  = 2 * time.Second
)

// withBudget bounds a call by the retry budget, and by the caller's deadline less a tenth of the remaining time: the caller of a try that
// fails gets the cause, and not a bare timeout.
func withBudget(ctx context.Context, budget time.Duration) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		budget = min(budget, left-left/10)
	}
	return context.WithTimeout(ctx, budget)
}

// retry tries until a try succeeds, the cause is permanent, or the context ends; the error is the last try's. A try that the end of the
// context has cut short names no cause, so the error also contains the cause of the try before. waiting is called with the first cause; it
// may be nil.
func retry(ctx context.Context, waiting func(cause error), try func() (*checkpoint.Record, error)) (*checkpoint.Record, error) {
	var before error
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		r, err := try()
		if err == nil {
			return r, nil
		}
		if before != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil, fmt.Errorf("%w; the last attempt did not finish: %w", before, err)
		}
		if !transient(err) || ctx.Err() != nil {
			return nil, err
		}
		before = err
		if waiting != nil {
			waiting(err)
			waiting = nil
		}
		select {
		case <-released(err):
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// transient reports whether a retry may help.
func transient(err error) bool {
	if refusal, ok := errors.AsType[*claim.Refusal](err); ok {
		return refusal.Transient
	}
	causes := []error{
		gpu.ErrInUse, gpu.ErrNotFound, gpu.ErrTimeout, gpu.ErrDriverNotLoaded,
		context.DeadlineExceeded, context.Canceled, // of the call, and not of its cause
	}
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

// mendable reports whether an operation that failed on a node may succeed in a later call, although not by itself. It reports false only
// for operations that driver or hardware does not support.
func mendable(err error) bool {
	_, never := errors.AsType[*gpu.UnsupportedError](err)
	return !never
}

// released returns a channel that is closed when another try may succeed, nil if only time can help.
func released(err error) <-chan struct{} {
	if held, ok := errors.AsType[*heldError](err); ok {
		return held.released
	}
	return nil
}
