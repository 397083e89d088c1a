package library

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Target is the object of a call as named in messages: "GPU 3" or WholeDriver.
type Target string

// WholeDriver is the target of calls that do not concern one GPU.
const WholeDriver Target = "the driver"

// GPUAt is the GPU with that index.
func GPUAt(index int) Target { return Target(fmt.Sprintf("GPU %d", index)) }

// Gate gives every call into the library a deadline. A call that passed it still occupies a thread; until it returns,
// further calls on the same target fail at once with the same error, so that a dead GPU costs a bounded number of threads.
type Gate struct {
	mu    sync.Mutex
	stuck map[Target]*hang
}

// hang counts the abandoned calls on one target.
type hang struct {
	err   error
	calls int
	// over is closed when the last of them has returned.
	over chan struct{}
}

// NewGate returns a gate on which no call hangs.
func NewGate() *Gate { return &Gate{stuck: map[Target]*hang{}} }

// Call describes one call: its target, its name and its time limit.
type Call struct {
	On    Target
	Name  string
	Limit time.Duration
}

// Pass runs fn and returns its result, gpu.ErrTimeout if fn exceeds the limit of the call, or the context's error.
func Pass[T any](ctx context.Context, g *Gate, c Call, fn func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("%s on %s: %w", c.Name, c.On, err)
	}
	if together, ok := ctx.Value(groupKey{}).(*group); ok {
		return pass(together, c, fn)
	}
	if err := g.Blocked(c.On); err != nil {
		return none, err
	}
	returned := make(chan result, 1)
	go func() {
		value, err := fn()
		returned <- result{value, err}
	}()
	timer := time.NewTimer(c.Limit)
	defer timer.Stop()
	var err error
	select {
	case r := <-returned:
		if r.err != nil {
			return none, fmt.Errorf("%s on %s: %w", c.Name, c.On, r.err)
		}
		return r.value, nil
	case <-timer.C:
		err = fmt.Errorf("%s on %s: %w of %v", c.Name, c.On, gpu.ErrTimeout, c.Limit)
		g.block(c.On, err)
	case <-ctx.Done():
		err = fmt.Errorf("%s on %s: %w", c.Name, c.On, ctx.Err())
		g.block(c.On, fmt.Errorf("%s on %s: %w (the caller gave up)", c.Name, c.On, gpu.ErrTimeout))
	}
	go func() {
		<-returned
		g.release(c.On)
	}()
	return none, err
}

// Blocked returns the error of the call that hangs on the target, nil if none does.
func (g *Gate) Blocked(on Target) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h := g.stuck[on]; h != nil {
		return h.err
	}
	return nil
}

// block records an abandoned call. The first one defines the error of the hang.
func (g *Gate) block(on Target, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stuck[on] == nil {
		g.stuck[on] = &hang{err: err, over: make(chan struct{})}
	}
	g.stuck[on].calls++
}

// release records that an abandoned call has returned.
func (g *Gate) release(on Target) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.stuck[on]
	if h.calls--; h.calls == 0 {
		delete(g.stuck, on)
		close(h.over)
	}
}

// Idle waits until no call hangs on the target. If the context ends first, it returns the error of Blocked.
func (g *Gate) Idle(ctx context.Context, on Target) error {
	g.mu.Lock()
	h := g.stuck[on]
	g.mu.Unlock()
	if h == nil {
		return nil
	}
	select {
	case <-h.over:
		return nil
	case <-ctx.Done():
		return h.err
	}
}
