package profile

import (
	"context"
	"fmt"
	"time"
)

// stall is how long a copy out of a container waits for the next byte.
const stall = time.Minute

// unlessStalled calls run with a context that ends when came is not called for as long as stall.
func unlessStalled(ctx context.Context, run func(ctx context.Context, came func()) error) error {
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
