package library

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// group is a sequence of calls on one target that another goroutine makes one after the other. A single call costs a goroutine, a timer and
// two thread switches, which take longer than most calls into the library.
type group struct {
	// step counts starts and ends of calls, so it is odd during a call. Its last value is abandoned.
	step atomic.Int64
	// call is the call that was started last.
	call atomic.Pointer[running]
	// late is the error for calls of an abandoned group.
	late atomic.Pointer[error]
}

// running is a call with its start time.
type running struct {
	call  Call
	since time.Time
}

// abandoned is the step of a group whose caller no longer waits.
const abandoned = -1

// groupKey is the key of a group in the context of its calls.
type groupKey struct{}

// Group runs fn. Calls on the target that fn makes with its context pass the gate together. Each call keeps its own deadline: if one
// exceeds it, Group returns the error of that call, and fn gets this error for that call and all further ones. Until fn has returned, other
// groups and calls on the target fail at once, so fn has exclusive access to the data that it changes. After the context ends, fn can make
// no further calls; Group waits for the running one up to its deadline. limit is the longest deadline of a call.
func (g *Gate) Group(ctx context.Context, on Target, limit time.Duration, fn func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", on, err)
	}
	if err := g.Blocked(on); err != nil {
		return err
	}
	calls := &group{}
	returned := make(chan error, 1)
	go func() { returned <- fn(context.WithValue(ctx, groupKey{}, calls)) }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case err := <-returned:
			return err
		case <-timer.C:
			left, err := calls.overdue(limit)
			if err == nil {
				timer.Reset(left)
				continue
			}
			g.block(on, err)
			go func() {
				<-returned //nolint:errcheck // the caller already has an error
				g.release(on)
			}()
			return err
		}
	}
}

// overdue abandons the group if the running call has exceeded its deadline; otherwise it returns when to check again.
func (c *group) overdue(limit time.Duration) (left time.Duration, err error) {
	step, now := c.step.Load(), c.call.Load()
	if step%2 == 0 || now == nil {
		return limit, nil
	}
	if left := now.call.Limit - time.Since(now.since); left > 0 {
		return left, nil
	}
	err = fmt.Errorf("%s on %s: %w of %v", now.call.Name, now.call.On, gpu.ErrTimeout, now.call.Limit)
	c.late.Store(&err)
	if !c.step.CompareAndSwap(step, abandoned) {
		c.late.Store(nil)
		return limit, nil // it has returned in the meantime
	}
	return 0, err
}

// pass makes one call of a group.
func pass[T any](c *group, call Call, fn func() (T, error)) (T, error) {
	var none T
	c.call.Store(&running{call, time.Now()})
	step := c.step.Load()
	if step == abandoned || !c.step.CompareAndSwap(step, step+1) {
		return none, *c.late.Load()
	}
	value, err := fn()
	if !c.step.CompareAndSwap(step+1, step+2) {
		return none, *c.late.Load()
	}
	if err != nil {
		return none, fmt.Errorf("%s on %s: %w", call.Name, call.On, err)
	}
	return value, nil
}
