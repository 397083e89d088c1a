package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Watcher holds the reports of the MPS service, while the node holds or advertises MPS shares. Every process of a node may run one. Before
// the first report nothing is known.
type Watcher struct {
	daemons Daemons
	wake    chan struct{}

	mu    sync.Mutex
	state state
	news  chan struct{} // closed when the state has changed
}

// Watched are the functions that a Watcher calls.
type Watched struct {
	// Needed reports whether the node holds or advertises MPS shares. It is called often. While it returns false, the service is not asked.
	Needed func() bool
	// Changed is called when the service was asked for the first time, does not answer or answers again, has another problem, and when it is not
	// needed any more.
	Changed func(before, now Answer)
}

// Answer is whether the service answers.
type Answer struct {
	// Asked is set from the first answer, or its absence, until the service is not needed any more.
	Asked bool
	// Unavailable is why the service does not answer, longer than its restart takes; nil otherwise.
	Unavailable error
	// Problem is why the service, which answers, can start no control daemon; empty otherwise.
	Problem string
}

// Usable reports whether the service answers and can start control daemons.
func (a Answer) Usable() bool { return a.Unavailable == nil && a.Problem == "" }

// state is a Watcher's knowledge.
type state struct {
	// current: daemons are the present daemons of the service.
	current bool
	daemons []gpu.MPSDaemon
	answer  Answer
}

const (
	// grace is how long the service may take to restart before it counts as unavailable. One that has not run since the node has booted, so
	// that there is no socket, does at once.
	grace = 10 * time.Second
	// beginTime is the time limit for the first probe and listing.
	beginTime = time.Second
	// pollTime is the time limit for a listing that waits for a change.
	pollTime = 45 * time.Second
	// A service that does not answer is asked again after askFirst, with exponential back-off up to askMost.
	askFirst = 100 * time.Millisecond
	askMost  = 2 * time.Second
	// idle is how often a node without shares is checked for some.
	idle = 10 * time.Second
)

// NewWatcher returns a Watcher that knows nothing yet.
func NewWatcher(daemons Daemons) *Watcher {
	return &Watcher{daemons: daemons, wake: make(chan struct{}, 1), news: make(chan struct{})}
}

// Wake has Run check now whether the service is needed. It does not block.
func (w *Watcher) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Begin asks the service once, before Run, so that a node's first advertisement says whether its MPS shares can be used.
func (w *Watcher) Begin(ctx context.Context, of Watched) {
	if of.Needed() {
		w.ask(ctx, of)
	}
}

// ask asks the service for the first time since it is needed, and returns the revision of its daemons, 0 without an answer. A service that does
// not answer counts as unavailable at once: the taint of a service that is only restarting is short, and a start that waited for it would delay
// all devices.
func (w *Watcher) ask(ctx context.Context, of Watched) (revision int64) {
	asking, stop := context.WithTimeout(ctx, beginTime)
	defer stop()
	var daemons []gpu.MPSDaemon
	problem, err := w.daemons.Probe(asking)
	if err == nil {
		daemons, revision, err = w.daemons.Daemons(asking, 0)
	}
	err = asUnavailable(err)
	if ctx.Err() == nil {
		w.report(of, state{current: err == nil, daemons: daemons, answer: Answer{Asked: true, Unavailable: err, Problem: problem}})
	}
	return revision
}

// Run watches until the context ends.
func (w *Watcher) Run(ctx context.Context, of Watched) error {
	after, wait := int64(0), askFirst
	var failing time.Time // since when the service does not answer; zero while it does
	for ctx.Err() == nil {
		if !of.Needed() {
			after, wait, failing = 0, askFirst, time.Time{}
			w.report(of, state{})
			w.pause(ctx, idle)
			continue
		}
		if !w.Asked() {
			after = w.ask(ctx, of)
			continue
		}
		asked := time.Now()
		next, revision, err := w.poll(ctx, after)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			wait, failing = askFirst, time.Time{}
			w.report(of, next)
			before := after
			after = revision
			if next.answer.Problem != "" { // the end of it changes no revision
				after = 0
			}
			if unchanged := revision == before && time.Since(asked) < askMost; unchanged || after <= 0 { // it would answer at once, again and again
				w.pause(ctx, askMost)
			}
			continue
		}
		switch { // a call that waited for a change may have ended just now
		case failing.IsZero() && after > 0:
			failing = time.Now()
		case failing.IsZero():
			failing = asked
		}
		w.report(of, state{answer: w.without(err, failing)})
		after = 0 // a service that was restarted counts from the start
		w.pause(ctx, wait)
		wait = min(2*wait, askMost)
	}
	return nil
}

// without returns the answer that holds if the service has not answered since failing: its last answer, unless that is longer ago than a
// restart takes.
func (w *Watcher) without(err error, failing time.Time) Answer {
	w.mu.Lock()
	last := w.state.answer
	w.mu.Unlock()
	absent := errors.Is(err, fs.ErrNotExist) // a service that restarts leaves its socket
	if last.Unavailable == nil && (absent || time.Since(failing) >= grace) {
		return Answer{Asked: true, Unavailable: err}
	}
	return last
}

// poll lists the daemons, and asks whether another could be started; every error is a gpu.ErrMPSUnavailable.
func (w *Watcher) poll(ctx context.Context, after int64) (next state, revision int64, err error) {
	ctx, stop := context.WithTimeout(ctx, pollTime)
	defer stop()
	next = state{current: true, answer: Answer{Asked: true}}
	if next.daemons, revision, err = w.daemons.Daemons(ctx, after); err == nil {
		next.answer.Problem, err = w.daemons.Probe(ctx)
	}
	return next, revision, asUnavailable(err)
}

// asUnavailable has every error be a gpu.ErrMPSUnavailable.
func asUnavailable(err error) error {
	if err != nil && !errors.Is(err, gpu.ErrMPSUnavailable) {
		return fmt.Errorf("%w: %w", gpu.ErrMPSUnavailable, err)
	}
	return err
}

func (w *Watcher) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.wake:
	case <-ctx.Done():
	}
}

// report replaces the known state, and reports another answer.
func (w *Watcher) report(of Watched, next state) {
	if before, changed := w.set(next); changed {
		of.Changed(before, next.answer)
	}
}

// set replaces the known state. It returns the answer before, and whether that was another one.
func (w *Watcher) set(next state) (Answer, bool) {
	w.mu.Lock()
	before := w.state
	answer := before.answer.Asked != next.answer.Asked || (before.answer.Unavailable == nil) != (next.answer.Unavailable == nil) ||
		before.answer.Problem != next.answer.Problem
	changed := answer || before.current != next.current || !reflect.DeepEqual(before.daemons, next.daemons)
	w.state = next
	if changed {
		close(w.news)
		w.news = make(chan struct{})
	}
	w.mu.Unlock()
	return before.answer, answer
}

// Asked reports whether the service was asked since it is needed.
func (w *Watcher) Asked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.answer.Asked
}

// News returns a channel that is closed when something else is known.
func (w *Watcher) News() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.news
}

// Unavailable returns why the service does not answer; nil as long as it does, or may be restarting.
func (w *Watcher) Unavailable() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.answer.Unavailable
}

// Daemon returns the service's present daemon; false if there is none, or if that is not known.
func (w *Watcher) Daemon(id gpu.MPSDaemonID) (gpu.MPSDaemon, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := find(w.state.daemons, id); d != nil && w.state.current {
		return *d, true
	}
	return gpu.MPSDaemon{}, false
}

// States counts the daemons by state.
func (w *Watcher) States() map[gpu.MPSDaemonState]int {
	counts := map[gpu.MPSDaemonState]int{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.state.daemons {
		counts[w.state.daemons[i].State]++
	}
	return counts
}

// Answers reports whether the service has answered last.
func (w *Watcher) Answers() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.current
}
