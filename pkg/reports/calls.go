package reports

import (
	"context"
	"errors"
	"sync"

	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

const (
	// runningCalls are the requests about one namespace that are answered at once; the others wait in the order in which they came.
	runningCalls = 16
	// namespaceCalls bounds the requests about a namespace that are answered or wait, and userCalls those of one user among them. Namespaces are
	// counted first: each can have any number of ServiceAccounts.
	namespaceCalls, userCalls = 128, 64
	// maxCalls bounds all of them together, systemCalls those of the cluster's controllers besides.
	maxCalls, systemCalls = 1024, 64
)

// errCrowded refuses a request because the queue is full.
var errCrowded = errors.New("too many concurrent requests for reports")

// calls are the requests that are answered or wait: requests about one namespace wait for each other, and not for those about others.
type calls struct {
	taken seats.Taken
	lines lines
}

// callSeats are the places of all requests.
var callSeats = seats.Bounds{All: maxCalls, Namespace: namespaceCalls, User: userCalls, Kept: systemCalls}

// enter waits until a request may run, and returns how it leaves; errCrowded if it may not wait, the context's error if that ends first.
func (c *calls) enter(ctx context.Context, by seats.Party) (leave func(), err error) {
	if !c.taken.Enter(callSeats, by) {
		return nil, errCrowded
	}
	end, err := c.lines.enter(ctx, lineOf(by), runningCalls)
	if err != nil {
		c.taken.Leave(by)
		return nil, err
	}
	return sync.OnceFunc(func() {
		end()
		c.taken.Leave(by)
	}), nil
}
