package e2e

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// pool shares the node's GPUs among tests that run beside each other.
type pool struct {
	size int
	// ordering lets one test take all it needs before the next one begins to.
	ordering sync.Mutex
	free     chan struct{}
}

func newPool(size int) *pool {
	p := &pool{size: size, free: make(chan struct{}, size)}
	for range size {
		p.free <- struct{}{}
	}
	return p
}

// whole tells that nobody has a GPU.
func (p *pool) whole() bool { return len(p.free) == p.size }

// take waits for n GPUs, which the test gives back when it ends.
func (p *pool) take(t *testing.T, n int) {
	t.Helper()
	require.LessOrEqual(t, n, p.size, "the node has too few GPUs for this test")
	if n == 0 {
		return
	}
	p.ordering.Lock()
	defer p.ordering.Unlock()
	for range n {
		<-p.free
	}
	t.Cleanup(func() {
		for range n {
			p.free <- struct{}{}
		}
	})
}
