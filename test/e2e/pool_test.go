package e2e

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pool leases the node's GPUs to tests that run in parallel.
type pool struct {
	size int
	// ordering lets one test take all the GPUs that it needs before the next one begins to.
	ordering sync.Mutex
	// whole are the GPUs that are advertised whole only. The scheduler allocates them first, so no others are allocated.
	whole chan struct{}
	// mig stands for the GPUs that are advertised as MIG devices too: one test has them at a time.
	mig chan struct{}
	// sharing has the indices of those that are advertised as time-sliced and as MPS shares too, and sharingOrder is ordering for them.
	sharing      chan int
	sharingOrder sync.Mutex
	// exporter is locked by tests that kill the exporter or count what it has since its start.
	exporter sync.Mutex
}

// newPool has so many GPUs, and so many of them are not advertised whole only.
func newPool(size, inOtherModes int) *pool {
	p := &pool{
		size: size, whole: make(chan struct{}, size-inOtherModes), mig: make(chan struct{}, 1), sharing: make(chan int, len(sharedGPUs)),
	}
	for range cap(p.whole) {
		p.whole <- struct{}{}
	}
	p.mig <- struct{}{}
	for _, index := range sharedGPUs {
		p.sharing <- index
	}
	return p
}

// free says that no test has a GPU.
func (p *pool) free() bool {
	return len(p.whole) == cap(p.whole) && len(p.mig) == 1 && len(p.sharing) == cap(p.sharing)
}

// lease waits for n whole GPUs, which the test has until it ends.
func (p *pool) lease(t *testing.T, n int) {
	t.Helper()
	require.LessOrEqual(t, n, cap(p.whole), "the node has too few GPUs for this test")
	if n == 0 {
		return
	}
	p.ordering.Lock()
	defer p.ordering.Unlock()
	for range n {
		take(t, p.whole)
	}
}

// leaseShared waits for n of the GPUs that are advertised as shares, which the test has until it ends, and returns the index of one.
func (p *pool) leaseShared(t *testing.T, n int) (index int) {
	t.Helper()
	p.sharingOrder.Lock()
	defer p.sharingOrder.Unlock()
	for range n {
		index = take(t, p.sharing)
	}
	return index
}

// take waits for one of what is leased, until the test ends.
func take[T any](t *testing.T, leased chan T) T {
	t.Helper()
	start := time.Now()
	one := <-leased
	t.Cleanup(func() { leased <- one })
	if waited := time.Since(start); waited > time.Second {
		t.Logf("waited %.0f s for a GPU that other tests had", waited.Seconds())
	}
	return one
}
