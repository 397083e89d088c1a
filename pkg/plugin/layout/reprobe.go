package layout

import (
	"time"

	"github.com/prism-gpu/prism/pkg/backoff"
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
