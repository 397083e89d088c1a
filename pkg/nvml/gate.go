package nvml

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// target is what a call concerns, as messages name it: "GPU 3" or wholeDriver.
type target string

const wholeDriver target = "the driver"

func gpuAt(index int) target { return target(fmt.Sprintf("GPU %d", index)) }

// gate gives every call into the library a deadline. A call that passed it still occupies a thread; until it returns,
// further calls on the same target fail at once with the same error, so that a dead GPU costs a bounded number of threads.
type gate struct {
	mu    sync.Mutex
	stuck map[target]*hang
}

// hang counts the calls on one target that nothing waits for any more.
type hang struct {
	err   error
	calls int
	// over is closed when the last of them came back.
	over chan struct{}
}

func newGate() *gate { return &gate{stuck: map[target]*hang{}} }

// call is one call: on what, named how, for how long.
type call struct {
	on    target
	name  string
	limit time.Duration
}

// pass runs fn and returns its result, gpu.ErrTimeout when it took longer than the call may, or the context's error.
func pass[T any](ctx context.Context, g *gate, c call, fn func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("%s on %s: %w", c.name, c.on, err)
	}
	if err := g.blocked(c.on); err != nil {
		return none, err
	}
	returned := make(chan result, 1)
	go func() {
		value, err := fn()
		returned <- result{value, err}
	}()
	timer := time.NewTimer(c.limit)
	defer timer.Stop()
	var err error
	select {
	case r := <-returned:
		if r.err != nil {
			return none, fmt.Errorf("%s on %s: %w", c.name, c.on, r.err)
		}
		return r.value, nil
	case <-timer.C:
		err = fmt.Errorf("%s on %s: %w of %v", c.name, c.on, gpu.ErrTimeout, c.limit)
		g.block(c.on, err)
	case <-ctx.Done():
		err = fmt.Errorf("%s on %s: %w", c.name, c.on, ctx.Err())
		g.block(c.on, fmt.Errorf("%s on %s: %w (the caller gave up)", c.name, c.on, gpu.ErrTimeout))
	}
	go func() {
		<-returned
		g.release(c.on)
	}()
	return none, err
}

// blocked returns the error of the call that hangs on the target, nil when none does.
func (g *gate) blocked(on target) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h := g.stuck[on]; h != nil {
		return h.err
	}
	return nil
}

// block notes a call that nothing waits for. The first one names the hang.
func (g *gate) block(on target, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stuck[on] == nil {
		g.stuck[on] = &hang{err: err, over: make(chan struct{})}
	}
	g.stuck[on].calls++
}

// release notes that such a call came back at last.
func (g *gate) release(on target) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.stuck[on]
	if h.calls--; h.calls == 0 {
		delete(g.stuck, on)
		close(h.over)
	}
}

// idle waits until no call hangs on the target. When the context ends before, it returns what blocked would.
func (g *gate) idle(ctx context.Context, on target) error {
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
