package profile

import (
	"context"
	"fmt"
	"time"
)

// stall is the timeout for the next byte of a copy from a container.
const stall = time.Minute

// unlessStalled calls run with a context that is canceled if touch is not called for the duration stall.
func unlessStalled(ctx context.Context, run func(ctx context.Context, touch func()) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	timer := time.AfterFunc(stall, func() { stop(fmt.Errorf("no data received for %s", stall)) })
	defer timer.Stop()
	err := run(ctx, func() { timer.Reset(stall) })
	if cause := context.Cause(ctx); err != nil && cause != nil && ctx.Err() != cause { //nolint:errorlint // it is the context's own error
		return cause
	}
	return err
}
