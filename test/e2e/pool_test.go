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
	// ordering lets one test take all the GPUs that it needs before the next one begins.
	ordering sync.Mutex
	// whole are the GPUs that are only advertised whole. The scheduler allocates them first, so it allocates no others.
	whole chan struct{}
	// mig stands for the GPUs that are also advertised as MIG devices: one test uses them at a time.
	mig chan struct{}
	// sharing contains the indices of GPUs that are also advertised as time-sliced and as MPS shares; sharingOrder is ordering for them.
	sharing      chan int
	sharingOrder sync.Mutex
	// exporter is locked by tests that kill the exporter or count its events since its start.
	exporter sync.Mutex
}

// newPool returns a pool of size GPUs, of which inOtherModes are not only advertised whole.
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

// free reports whether no test leases a GPU.
func (p *pool) free() bool {
	return len(p.whole) == cap(p.whole) && len(p.mig) == 1 && len(p.sharing) == cap(p.sharing)
}

// lease waits for n whole GPUs, and leases them until the test ends.
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

// leaseShared waits for n of the GPUs that are advertised as shares, leases them until the test ends, and returns the index of one.
func (p *pool) leaseShared(t *testing.T, n int) (index int) {
	t.Helper()
	p.sharingOrder.Lock()
	defer p.sharingOrder.Unlock()
	for range n {
		index = take(t, p.sharing)
	}
	return index
}

// take waits for one element, and leases it until the test ends.
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
