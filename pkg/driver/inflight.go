package driver

import (
	"context"
	"sync"

	"google.golang.org/grpc"
)

// inFlight counts the calls that are being answered.
type inFlight struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to zero; nil while nothing waits
}

// count is an interceptor that sees every call.
func (r *inFlight) count(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	r.add(1)
	defer r.add(-1)
	return handler(ctx, req)
}

func (r *inFlight) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n += n
	if r.n == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// wait returns when no call runs any more, or when the context ends.
func (r *inFlight) wait(ctx context.Context) {
	r.mu.Lock()
	if r.n == 0 {
		r.mu.Unlock()
		return
	}
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
