package reports

import (
	"context"
	"sync"

	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

// line is the queue of a request: of its namespace, or of the cluster's controllers.
type line struct {
	namespace string
	system    bool
}

func lineOf(by seats.Party) line {
	if by.System {
		return line{system: true}
	}
	return line{namespace: by.Namespace}
}

// lines are the queues of namespaces: requests only wait for others about the same namespace.
type lines struct {
	mu     sync.Mutex
	queues map[line]*queue
}

// queue is a line with a maximum of running places.
type queue struct {
	running chan struct{}
	// members is the number of running and waiting requests.
	members int
}

// enter waits for a place of a line, and returns a function to leave it, or the context's error if that ends first.
func (l *lines) enter(ctx context.Context, at line, places int) (leave func(), err error) {
	of := l.join(at, places)
	select {
	case of.running <- struct{}{}:
		return func() {
			<-of.running
			l.part(at, of)
		}, nil
	case <-ctx.Done():
		l.part(at, of)
		return nil, ctx.Err()
	}
}

func (l *lines) join(at line, places int) *queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queues == nil {
		l.queues = map[line]*queue{}
	}
	of := l.queues[at]
	if of == nil {
		of = &queue{running: make(chan struct{}, places)}
		l.queues[at] = of
	}
	of.members++
	return of
}

// part drops a queue without members.
func (l *lines) part(at line, of *queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of.members--; of.members == 0 {
		delete(l.queues, at)
	}
}

// slots are taken while a node is asked. Use newSlots.
type slots struct {
	lines lines
	// all are the slots of all namespaces, kept the slots of the cluster's controllers.
	all, kept chan struct{}
}

func newSlots() *slots {
	return &slots{all: make(chan struct{}, asked), kept: make(chan struct{}, systemAsked)}
}

// take waits for a slot: first for a slot of the namespace, so that no namespace waits for all nodes that another one asks. It returns a
// function to leave the slot, or the context's error if that ends first.
func (s *slots) take(ctx context.Context, at line) (give func(), err error) {
	leave, err := s.lines.enter(ctx, at, namespaceAsked)
	if err != nil {
		return nil, err
	}
	of := s.all
	if at.system {
		of = s.kept
	}
	select {
	case of <- struct{}{}:
		return func() {
			<-of
			leave()
		}, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
