package driver

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Calls counts the kubelet's calls in flight. The zero value is ready to use.
type Calls struct {
	mu   sync.Mutex
	n    int
	last time.Time     // when n last fell to zero
	idle chan struct{} // closed when n falls to zero; nil without waiters
}

// Quiet returns the time since the last call in flight ended, 0 during a call.
func (c *Calls) Quiet() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n > 0 {
		return 0
	}
	return time.Since(c.last)
}

// count is an interceptor that counts every call.
func (c *Calls) count(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	defer c.Begin()()
	return handler(ctx, req)
}

// Begin counts a call until it ends.
func (c *Calls) Begin() (end func()) {
	c.add(1)
	return func() { c.add(-1) }
}

func (c *Calls) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	if c.n == 0 {
		c.last = time.Now()
	}
	if c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// wait returns when no call is in flight, or when the context ends.
func (c *Calls) wait(ctx context.Context) {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
