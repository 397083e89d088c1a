package reports

import (
	"context"
	"errors"
	"sync"

	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

const (
	// runningCalls is the number of concurrent requests about one namespace; others wait in the order of their arrival.
	runningCalls = 16
	// namespaceCalls limits running and waiting requests about a namespace, and userCalls the requests of one user among them. Namespaces
	// are counted first, because each can contain any number of ServiceAccounts.
	namespaceCalls, userCalls = 128, 64
	// maxCalls limits all of them together, systemCalls additionally the requests of the cluster's controllers.
	maxCalls, systemCalls = 1024, 64
)

// errCrowded refuses a request because the queue is full.
var errCrowded = errors.New("too many concurrent requests for reports")

// calls are the running and waiting requests: requests about one namespace only wait for each other.
type calls struct {
	taken seats.Taken
	lines lines
}

// callSeats are the places of all requests.
var callSeats = seats.Bounds{All: maxCalls, Namespace: namespaceCalls, User: userCalls, Kept: systemCalls}

// enter waits until a request may run, and returns a function to leave. It returns errCrowded if the request may not wait, or the context's
// error if that ends first.
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
