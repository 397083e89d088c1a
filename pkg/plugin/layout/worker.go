package layout

import (
	"context"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

const (
	// Failed calls are retried after retryFirst, then after twice as long each time up to retryMax.
	retryFirst = time.Second
	retryMax   = 10 * time.Second
	// retryBudget is the number of failures after which a transient problem is reported to the administrator.
	retryBudget = 6
	// roundInterval is the longest time between two rounds, drainInterval while a GPU's layout is to change.
	roundInterval = 10 * time.Second
	drainInterval = time.Second
	// standbyInterval is the time between two reads of the leading process's saved layouts by a process that does not lead: less than a
	// claim's retry budget.
	standbyInterval = time.Second
	// debounce is the time that a change of the configuration waits for further ones: label and content are often changed together. All
	// nodes see the same change at once, so each also waits for a part of pageInterval: 1,000 nodes read and publish 200 times a second.
	debounce = 500 * time.Millisecond
)

// worker is the mutable state. One goroutine uses it, without a lock.
type worker struct {
	options  *Options
	requests *requests
	output   *output
	state    *state
	drain    *drain
	// read are the records that were read at the start, while begin runs.
	read []*checkpoint.Record
}

func newWorker(options *Options, requests *requests, output *output) *worker {
	w := &worker{options: options, requests: requests, output: output, state: newState(options)}
	w.drain = &drain{worker: w, pages: pages{node: options.NodeName}, archive: &archive{options: options, state: w.state, output: output}}
	w.drain.archive.recall()
	w.state.config.before = len(w.state.rollout.current) > 0
	w.show(&Snapshot{Node: options.Inventory.Current().Node, Err: w.state.config.unread, view: options.Inventory.Current()})
	return w
}

// begin computes the first snapshot from the configuration and the records of the start.
func (w *worker) begin(ctx context.Context, read AtStart) {
	w.read = read.Records
	defer func() { w.read = nil }()
	w.state.config.take(ctx, w.options.Config, read.Config, read.ConfigErr)
	if w.state.config.result.passing {
		w.state.config.rereads.retry.Defer(time.Now())
	}
	w.output.stale = true
	w.update()
	w.probe(ctx)
	w.renew()
}

// run makes rounds until the context ends: at once after a request or a change of the inventory, else when work is due.
func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.round(ctx)
		w.serve(ctx, nil, w.pause(time.Now()))
	}
}

// round does all work that is due.
func (w *worker) round(ctx context.Context) {
	w.update()
	w.reread(ctx)
	w.renew()
	w.probe(ctx)
	w.renew()
	w.drain.advance(ctx)
	if s := w.output.latest.Load(); s.withholds() {
		records, err := w.options.Records() // on an error the withheld devices stay withheld
		if err == nil && s.released(w.options.NodeName, records) {
			w.output.stale = true
		}
	}
	w.renew()
}

// pause is the time until work is due.
func (w *worker) pause(now time.Time) time.Duration {
	pause := roundInterval
	if w.output.stale {
		pause = retryFirst // the records could not be read
	}
	pause = w.state.config.pause(now, w.options.Config.Watched, pause)
	if w.output.latest.Load().unprobed() {
		pause = min(pause, w.state.capabilities.retry.Next().Sub(now))
	}
	if due := w.state.capabilities.again.due; !due.IsZero() {
		pause = min(pause, due.Sub(now))
	}
	return max(0, min(pause, w.drain.pause(now)))
}

// serve applies requests and changes of the inventory until done is closed. Without done it returns after it has applied one, when the
// time is over, or when the context ends.
func (w *worker) serve(ctx context.Context, done <-chan struct{}, pause time.Duration) {
	ended, timer := ctx.Done(), time.NewTimer(pause)
	defer timer.Stop()
	over := timer.C
	if done != nil {
		ended, over = nil, nil
	}
	for {
		var tick <-chan time.Time
		if !w.drain.leading {
			tick = time.After(standbyInterval)
		}
		select {
		case <-done:
			return
		case <-over:
			return
		case <-ended:
			return
		case <-w.requests.wake:
		case <-w.output.view().Replaced():
		case <-tick:
		}
		w.update()
		if done == nil {
			return
		}
	}
}

// call makes a call that may take long, in a separate goroutine, and serves requests and changes meanwhile.
func call[T any](ctx context.Context, w *worker, api func(ctx context.Context) (T, error)) (value T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, err = api(ctx)
	}()
	w.serve(ctx, done, 0)
	return value, err
}

// update applies requests and, while another process leads, the layouts that it has saved, and computes the snapshot if inputs changed.
func (w *worker) update() {
	r := w.requests.take()
	if r.reload {
		w.state.config.rereads.changed(time.Now())
	}
	if r.countersDropped {
		w.state.countersAre(Unsupported)
		w.output.stale = true
	}
	if r.taintsDropped {
		w.state.capabilities.taints = Unsupported
	}
	w.state.capabilities.again.requested(r, w.options.NodeName, time.Now())
	if r.leading != nil {
		w.drain.lead(*r.leading)
	}
	if !w.drain.leading {
		w.drain.archive.follow()
	}
	w.renew()
	if r.leading != nil {
		s := *w.output.latest.Load()
		w.show(&s)
	}
	for _, taken := range r.taken {
		close(taken)
	}
}

// renew computes the snapshot if an input has changed.
func (w *worker) renew() {
	view := w.options.Inventory.Current()
	if !w.output.stale && w.output.view() == view {
		return
	}
	if w.state.config.unread != nil {
		w.output.stale = false
		w.show(&Snapshot{Node: view.Node, Err: w.state.config.unread, view: view})
		return
	}
	s := &Snapshot{Node: view.Node, view: view}
	records, err := w.read, error(nil)
	if records == nil {
		records, err = w.options.Records()
	}
	if w.output.stale = err != nil; err != nil { // tried again until they can be read
		s.Err = err
	} else if s.Layout, s.Err = w.state.compose(view, records, time.Now()); s.Err == nil {
		s.Node, s.Leaving = s.Layout.Sized(view.Node), w.state.rollout.Leaving()
	}
	w.show(s)
}

// show replaces the snapshot.
func (w *worker) show(s *Snapshot) {
	s.Standby, s.Flags = !w.drain.leading, w.state.config.flags(w.drain.archive.saved.Flags)
	s.Status = Status{Changing: len(w.state.rollout.changes), Problems: w.state.notices.problems()}
	w.output.store(s)
}
