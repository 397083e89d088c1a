package layout

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/backoff"
	"github.com/prism-gpu/prism/pkg/events"
)

const (
	// lossSpread is the time over which the nodes of a cluster probe again when all of them have lost their connections: 1,000 nodes send
	// at most 20 probes a second. lossInterval is the time between two probes of a node, even if connections are lost all the time.
	lossSpread   = time.Minute
	lossInterval = 10 * time.Minute
	// Dropped fields are probed again after dropFirst, twice as long each time, dropTries times: during an upgrade one of several API
	// servers may be older, and another one may have answered the probe. Then, to not probe for ever, they are not probed before the next
	// lost connection.
	dropFirst = 5 * time.Minute
	dropMax   = 80 * time.Minute
	dropTries = 5
)

// reprobe decides when known features are probed again. Only events cause that, and each causes a bounded number of probes.
type reprobe struct {
	// due is the time of the next probe; zero means never. Last is the time of the last one.
	due, last time.Time
	// lost: it is for a lost connection.
	lost bool
	// drops holds the waits after fields were dropped, and dropped counts them.
	drops   backoff.Backoff
	dropped int
}

func newReprobe() reprobe { return reprobe{drops: backoff.Backoff{First: dropFirst, Max: dropMax}} }

// requested takes up events.
func (r *reprobe) requested(by request, node string, now time.Time) {
	if by.lost {
		r.drops.Reset()
		r.dropped, r.lost = 0, true
		r.plan(now, node)
	}
	if by.dropped && r.due.IsZero() && r.dropped < dropTries {
		r.dropped++
		r.drops.Defer(now)
		r.due = r.drops.Next().Add(phase(node, lossSpread))
	}
}

// plan plans a probe after a connection was lost.
func (r *reprobe) plan(now time.Time, node string) {
	from := now
	if next := r.last.Add(lossInterval); !r.last.IsZero() && next.After(from) {
		from = next
	}
	if due := from.Add(phase(node, lossSpread)); r.due.IsZero() || due.Before(r.due) {
		r.due = due
	}
}

// isDue reports whether to probe now.
func (r *reprobe) isDue(now time.Time) bool { return !r.due.IsZero() && !now.Before(r.due) }

// deferred puts a probe off that has failed.
func (r *reprobe) deferred(to time.Time) {
	if !r.due.IsZero() {
		r.due = to
	}
}

// done ends a probe that was due, and reports whether it was for a lost connection.
func (r *reprobe) done(now time.Time) (lost bool) {
	if r.isDue(now) {
		lost, r.lost = r.lost, false
		r.due, r.last = time.Time{}, now
	}
	return lost
}

// ask probes whether the API server stores counters and, if so, whether the scheduler counts shares. With again, it also probes whether the
// API server stores taints. Counters that no layout has required yet are not probed again.
func (api APIPorts) ask(ctx context.Context, known features, again bool) (features, error) {
	if again {
		stored, err := api.DeviceTaints(ctx)
		if err != nil {
			return known, err
		}
		if known.taints = supported(stored); known.counters == Unknown {
			return known, nil
		}
	}
	stored, err := api.PartitionableDevices(ctx)
	if err != nil {
		return known, err
	}
	if known.counters, known.shares = supported(stored), Unknown; !stored {
		return known, nil
	}
	counted, err := api.CountsShares(ctx)
	known.shares = supported(counted)
	return known, err
}

// unprobed reports whether the layout waits for a probe.
func (s *Snapshot) unprobed() bool { return errors.Is(s.Err, errCounters) }

// probe probes the features if a probe is due and the layout waits for it or the features are to be probed again.
func (w *worker) probe(ctx context.Context) {
	c, now := &w.state.capabilities, time.Now()
	waits, again := w.output.latest.Load().unprobed(), c.again.isDue(now)
	if !again && (!waits || !c.retry.Due(now)) {
		return
	}
	known := c.features
	found, err := call(ctx, w, func(ctx context.Context) (features, error) { return w.options.API.ask(ctx, known, again && !waits) })
	if err == nil && c.features != known { // the API server has dropped fields meanwhile, which counts
		c.again.done(time.Now())
		c.again.requested(request{dropped: true}, w.options.NodeName, time.Now())
		return
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The features of the API server are not known")
		w.state.notFound(err, waits)
		return
	}
	c.failures = 0
	c.retry.Reset()
	lost := c.again.done(time.Now())
	before := w.output.latest.Load()
	w.output.stale = w.output.stale || found != c.features
	w.state.found(found)
	if again && !waits {
		reprobed(w, before, found, lost || found != known) // else the same fields would be dropped again
	}
}

// reprobed reports a layout that changes because features were probed again, and requests its publication.
func reprobed(w *worker, before *Snapshot, found features, publish bool) {
	w.renew()
	if after := w.output.latest.Load(); before.Err == nil && after.Err == nil && !reflect.DeepEqual(before.Layout, after.Layout) {
		w.state.notices.changed(found)
	}
	if publish {
		w.options.API.Probed(found.taints != Unsupported)
	}
}

// notFound puts the next probe off, and reports that a layout waits for it.
func (s *state) notFound(err error, waits bool) {
	c := &s.capabilities
	c.retry.Defer(time.Now())
	c.again.deferred(c.retry.Next())
	if c.failures++; waits && c.failures == retryBudget {
		s.notices.warn(advice{reason: events.PartitionableDevicesUnknown}, fmt.Sprintf("No change of the layout is published: %v", err))
	}
}
