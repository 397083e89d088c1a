package reports

import (
	"context"
	"errors"
	"sync"
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
var errCrowded = errors.New("too many requests for reports at once")

// calls are the requests that are answered or wait: requests about one namespace wait for each other, and not for those about others.
type calls struct {
	taken taken
	mu    sync.Mutex
	lines map[line]*queue
}

// line is what a request waits in: that of its namespace, or of the cluster's controllers.
type line struct {
	namespace string
	system    bool
}

// queue is a line with as many running places as it may have.
type queue struct {
	running chan struct{}
	// members are those that run or wait.
	members int
}

// callSeats are the places of all requests.
var callSeats = seats{all: maxCalls, namespace: namespaceCalls, user: userCalls, kept: systemCalls}

// enter waits until a request may run, and returns how it leaves; errCrowded if it may not wait, the context's error if that ends first.
func (c *calls) enter(ctx context.Context, by party) (leave func(), err error) {
	if !c.taken.enter(callSeats, by) {
		return nil, errCrowded
	}
	at := line{by.namespace, by.system}
	if by.system {
		at.namespace = ""
	}
	of := c.join(at)
	select {
	case of.running <- struct{}{}:
		return sync.OnceFunc(func() {
			<-of.running
			c.part(at, of)
			c.taken.leave(by)
		}), nil
	case <-ctx.Done():
		c.part(at, of)
		c.taken.leave(by)
		return nil, ctx.Err()
	}
}

func (c *calls) join(at line) *queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines == nil {
		c.lines = map[line]*queue{}
	}
	of := c.lines[at]
	if of == nil {
		of = &queue{running: make(chan struct{}, runningCalls)}
		c.lines[at] = of
	}
	of.members++
	return of
}

// part drops a queue without members.
func (c *calls) part(at line, of *queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.members--; of.members == 0 {
		delete(c.lines, at)
	}
}
