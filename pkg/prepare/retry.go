package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// The waits between the tries of one call.
const (
	firstWait = 250 * time.Millisecond
	longWait  = 2 * time.Second
)

// within bounds a call by Patience, and by the caller's deadline less a tenth of what is left of it: who waits in vain shall
// hear why, and not a bare timeout.
func (t *Transaction) within(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := t.settings.Patience
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		limit = min(limit, left-left/10)
	}
	return context.WithTimeout(ctx, limit)
}

// patiently tries until it works, the cause will not go away by itself, or the context ends; the error is the last try's. A try that the
// end of the context has cut short names no cause, so the error has that of the try before as well. waiting is told of the first cause; it
// may be nil.
func patiently(ctx context.Context, waiting func(cause error), try func() error) error {
	var before error
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		err := try()
		if before != nil && err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return fmt.Errorf("%w; the last attempt did not finish: %w", before, err)
		}
		if err == nil || !transient(err) || ctx.Err() != nil {
			return err
		}
		before = err
		if waiting != nil {
			waiting(err)
			waiting = nil
		}
		select {
		case <-freed(err):
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// transient tells whether a retry may help.
func transient(err error) bool {
	if refusal, ok := errors.AsType[*claim.Refusal](err); ok {
		return refusal.Transient
	}
	causes := []error{
		gpu.ErrInUse, gpu.ErrNotFound, gpu.ErrTimeout, gpu.ErrDriverNotLoaded,
		context.DeadlineExceeded, context.Canceled, // the call ended, not the reason for it
	}
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

// freed returns a channel that is closed when trying again is worth it, nil where only time can tell.
func freed(err error) <-chan struct{} {
	if held, ok := errors.AsType[*heldError](err); ok {
		return held.freed
	}
	return nil
}
