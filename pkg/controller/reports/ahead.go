package reports

import (
	"context"
	"sync"
	"sync/atomic"
)

// ahead requests the first items of the nodes of a list, several at once, before they are needed. Waiting answers take a bounded amount
// of memory.
type ahead[T item] struct {
	nodes *Nodes
	query *Query
	// endpoints are in the order of their nodes; answers contains one channel for each.
	endpoints []Endpoint
	answers   []chan answered[T]
	room      room
	// found is the number of received items: nodes are asked until the list is full.
	found atomic.Int64
}

// answered is the result of asking a node.
type answered[T item] struct {
	nodeList[T]
	err error
}

// askAhead starts to ask, until the context ends.
func askAhead[T item](ctx context.Context, n *Nodes, endpoints []Endpoint, q *Query) *ahead[T] {
	a := &ahead[T]{nodes: n, query: q, endpoints: endpoints, answers: make([]chan answered[T], len(endpoints)), room: newRoom(aheadCost)}
	for i := range a.answers {
		a.answers[i] = make(chan answered[T], 1)
	}
	go a.run(ctx)
	return a
}

func (a *ahead[T]) run(ctx context.Context) {
	for i, e := range a.endpoints {
		if int(a.found.Load()) >= a.query.items() || !a.room.take(ctx, firstCost) {
			return
		}
		give, err := a.nodes.slots.take(ctx, a.query.line)
		if err != nil {
			return
		}
		go func() {
			defer give()
			after, read := "", 0
			if e.Node == a.query.After.Node {
				after, read = a.query.After.After, a.query.After.Read
			}
			list, err := askNode[T](ctx, a.nodes, e, a.query, after, bounds{bytes: firstBytes, cost: firstCost, items: min(firstItems, maxReports-read), kept: firstItems})
			a.found.Add(int64(len(list.items)))
			a.room.give(firstCost - list.cost)
			a.answers[i] <- answered[T]{list, err}
		}()
	}
}

// take waits for the answer of the next node; false: the context ended first.
func (a *ahead[T]) take(ctx context.Context, i int) (answered[T], bool) {
	select {
	case answer := <-a.answers[i]:
		a.room.give(answer.cost)
		return answer, ctx.Err() == nil
	case <-ctx.Done():
		return answered[T]{}, false
	}
}

// room is an amount of memory. One goroutine takes from it, and any goroutine gives back.
type room struct {
	mu    sync.Mutex
	left  int
	freed chan struct{}
}

func newRoom(size int) room { return room{left: size, freed: make(chan struct{}, 1)} }

// take waits until the amount is available; false: the context ended first.
func (r *room) take(ctx context.Context, size int) bool {
	for {
		r.mu.Lock()
		enough := r.left >= size
		if enough {
			r.left -= size
		}
		r.mu.Unlock()
		if enough {
			return ctx.Err() == nil
		}
		select {
		case <-r.freed:
		case <-ctx.Done():
			return false
		}
	}
}

func (r *room) give(size int) {
	r.mu.Lock()
	r.left += size
	r.mu.Unlock()
	select {
	case r.freed <- struct{}{}:
	default:
	}
}
