package collector

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

const (
	// retryEvery is the interval of tries while a GPU is busy, and of retries to write a state.
	retryEvery = 30 * time.Second
	// maxFailures is the number of failures after which an order is not tried again.
	maxFailures = 2
)

// recording is a prism-run beside a process that does nothing.
type recording interface {
	// events returns its progress. It is closed once prism-run has exited.
	events() <-chan event
	// finish lets the process exit, and prism-run write the report. It may be called again.
	finish()
	// result returns how it ended, once events is closed: Ended, or the reason of a failure.
	result() outcome
}

// event is a change of a recording: that it waits for commands or records, or with failed, why a command for it failed.
type event struct {
	reason counters.Reason
	failed *outcome
}

// worker carries out one order. Only its goroutine uses state and the fields below it.
type worker struct {
	orders *orders
	uid    string
	raw    []byte
	// order is nil if it is invalid, which invalid says.
	order   *counters.Order
	invalid error
	changed chan struct{}
	end     context.CancelFunc
	// ending: end was called, but prism-run may still write a report. It belongs to orders.
	ending bool
	state  counters.State
	// save is the timer of a retry to write the state; refused: writing it failed, which is logged.
	save    *time.Timer
	refused bool
}

// newWorker reads the state of an earlier collector.
func newWorker(o *orders, uid string, raw []byte) *worker {
	w := &worker{orders: o, uid: uid, raw: raw, changed: make(chan struct{}, 1), save: time.NewTimer(retryEvery)}
	w.save.Stop()
	if w.order, w.invalid = counters.ParseOrder(raw); w.invalid == nil && w.order.Claim != uid {
		w.order, w.invalid = nil, fmt.Errorf("reading an order: claim must be %s, got %s", uid, w.order.Claim)
	}
	if earlier, err := read(o.root, w.statePath()); err == nil {
		w.state, _ = counters.ParseState(earlier)
	}
	return w
}

func (w *worker) statePath() string { return filepath.Join(w.uid, counters.StateFile) }

// gpus are the GPUs of the order.
func (w *worker) gpus() []counters.GPU {
	if w.order == nil {
		return nil
	}
	return w.order.GPUs
}

// wake reports a change in the directory.
func (w *worker) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// run carries out the order until the context ends: the order was removed or changed, or the collector exits.
func (w *worker) run(ctx context.Context) {
	w.carryOut(ctx)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-w.changed:
		case <-w.save.C:
			w.write(ctx)
		}
	}
	w.save.Stop()
	// Not with the context of the order, which has ended.
	w.orders.over(w.uid)
}

// carryOut tries the order until it has ended or cannot be carried out.
func (w *worker) carryOut(ctx context.Context) {
	if w.invalid != nil {
		w.set(ctx, outcome{reason: counters.Failed, message: sentence(w.invalid.Error())})
		return
	}
	for failures := 0; ctx.Err() == nil && w.state.Reason != counters.Ended; {
		if w.late() {
			// An earlier collector was killed.
			w.set(ctx, outcome{reason: counters.Ended})
			return
		}
		o := w.try(ctx)
		if ctx.Err() != nil {
			return
		}
		if o.reason == counters.Failed {
			failures++
			if failures < maxFailures && !w.late() {
				klog.FromContext(ctx).Info("Recording counters failed and is tried again", w.fields("message", o.message)...)
				continue
			}
		}
		w.set(ctx, o)
		if o.reason != counters.PerfmonBusy || !w.pause(ctx) {
			return
		}
	}
}

// late reports whether a recording has taken its time, also before a restart.
func (w *worker) late() bool {
	return w.state.Reason == counters.Recording && !w.order.Manual && w.left() <= 0
}

// left is the rest of the time of a recording.
func (w *worker) left() time.Duration {
	whole := time.Duration(w.order.Seconds) * time.Second
	return min(whole, time.Until(w.state.Since.Add(whole))) // the clock may have been set back
}

// pause waits for the next try; false if the context ends before.
func (w *worker) pause(ctx context.Context) bool {
	next := time.NewTimer(retryEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-w.changed:
		case <-w.save.C:
			w.write(ctx)
		case <-next.C:
			return true
		}
	}
}

// try carries out the order once.
func (w *worker) try(ctx context.Context) outcome {
	commands, o := choose(ctx, w.orders.profiler, w.order)
	if o.reason != "" || ctx.Err() != nil {
		return o
	}
	r, err := w.orders.profiler.begin(ctx, w.order, commands, w.changed)
	if err != nil {
		reason, message := explain(err.Error(), counters.Failed)
		return outcome{reason: reason, message: message}
	}
	f := following{worker: w, recording: r, broken: false, due: time.NewTimer(0), retry: time.NewTimer(retryEvery), free: make(chan bool, 1)}
	f.due.Stop()
	f.retry.Stop()
	o = f.follow(ctx)
	if o.reason == counters.PerfmonBusy {
		o.busy = w.order.GPUs
	}
	return o
}

// following follows one recording.
type following struct {
	*worker
	recording recording
	// broken: a command failed because of the GPUs, which the state says until they record again, or are free.
	broken bool
	// due is the end of the recording, retry the next check whether GPUs are free, and free its result.
	due, retry *time.Timer
	free       chan bool
}

// follow returns when the recording has ended.
func (f *following) follow(ctx context.Context) outcome {
	defer f.due.Stop()
	defer f.retry.Stop()
	for {
		select {
		case e, more := <-f.recording.events():
			if !more {
				return f.recording.result()
			}
			f.take(ctx, e)
		case <-f.due.C:
			f.recording.finish()
		case <-f.save.C:
			f.write(ctx)
		case <-f.retry.C:
			f.check(ctx)
		case free := <-f.free:
			if free && f.broken {
				f.broken = false
				f.set(ctx, outcome{reason: counters.Waiting})
			} else if f.broken {
				f.retry.Reset(retryEvery)
			}
		}
	}
}

// take handles an event.
func (f *following) take(ctx context.Context, e event) {
	switch {
	case e.failed != nil:
		// The answer to the command reports other failures: the next command may succeed.
		if e.failed.reason == counters.Failed {
			return
		}
		f.broken = true
		o := *e.failed
		if o.reason == counters.PerfmonBusy {
			o.busy = f.order.GPUs
			f.retry.Reset(retryEvery)
		}
		f.set(ctx, o)
	case e.reason == counters.Recording:
		f.broken = false
		f.set(ctx, outcome{reason: e.reason})
		if !f.order.Manual {
			f.due.Reset(f.left())
		}
	case !f.broken:
		f.set(ctx, outcome{reason: e.reason})
	}
}

// check asks the profiler whether the GPUs are free.
func (f *following) check(ctx context.Context) {
	p, gpus := f.orders.profiler, f.order.GPUs
	f.orders.running.Go(func() {
		_, o := list(ctx, p).findAll(gpus)
		select {
		case f.free <- o.reason == "":
		default: // nothing follows the recording any more
		}
	})
}

// set changes the state, and writes it.
func (w *worker) set(ctx context.Context, o outcome) {
	if ctx.Err() != nil {
		return // the directory may be removed
	}
	select {
	case w.orders.marks <- mark{w.gpus(), o.busy}:
	case <-ctx.Done():
		return
	}
	if w.state.Reason == o.reason {
		return
	}
	w.state = counters.State{Reason: o.reason, Message: o.message, Since: time.Now()}
	klog.FromContext(ctx).Info("The state of an order for counters changed", w.fields("reason", string(o.reason), "message", o.message)...)
	w.write(ctx)
}

// write writes the state, or retries it later: a full disk does not end a recording.
func (w *worker) write(ctx context.Context) {
	state := w.state
	state.Since = state.Since.UTC()
	content, err := state.Encode()
	if err == nil {
		err = replace(w.orders.root, w.statePath(), content)
	}
	switch {
	case err == nil:
		w.refused = false
	case ctx.Err() == nil:
		if !w.refused {
			klog.FromContext(ctx).Error(err, "Writing the state of an order failed and will be retried", w.fields()...)
		}
		w.refused = true
		w.save.Reset(retryEvery)
	}
}

func (w *worker) fields(more ...any) []any {
	fields := []any{"claimUID", w.uid}
	if w.order != nil {
		fields = append(fields, "claim", w.order.Namespace+"/"+w.order.Name)
	}
	return append(fields, more...)
}
