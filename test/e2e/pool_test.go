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
	// free are the GPUs that are offered whole only. The scheduler hands them out first, so others are not touched.
	free chan struct{}
	// sliced stands for all the others, which one test has at a time.
	sliced chan struct{}
}

// newPool has so many GPUs, and so many of them are offered in slices or in turns too.
func newPool(size, sliced int) *pool {
	p := &pool{size: size, free: make(chan struct{}, size-sliced), sliced: make(chan struct{}, 1)}
	for range cap(p.free) {
		p.free <- struct{}{}
	}
	p.sliced <- struct{}{}
	return p
}

// whole tells that nobody has a GPU.
func (p *pool) whole() bool { return len(p.free) == cap(p.free) && len(p.sliced) == 1 }

// take waits for n GPUs, which the test gives back when it ends.
func (p *pool) take(t *testing.T, n int) {
	t.Helper()
	require.LessOrEqual(t, n, cap(p.free), "the node has too few GPUs for this test")
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

// takeSliced waits for the GPUs that are offered in slices or in turns too.
func (p *pool) takeSliced(t *testing.T) {
	t.Helper()
	<-p.sliced
	t.Cleanup(func() { p.sliced <- struct{}{} })
}
