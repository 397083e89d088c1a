package reconcile

import "time"

const (
	// goneFor is how long a claim must be known to be gone.
	goneFor = 5 * time.Minute
	// longestGap is the longest time between two answers of which it is believed that nothing else was true in between.
	longestGap = 3 * Period
)

// report is what is known of a claim's existence.
type report int

const (
	// unknown: the API server was not asked, or did not answer.
	unknown report = iota
	// exists: the claim exists, or a container has its devices.
	exists
	// gone: the API server has no claim of that UID.
	gone
)

// absences holds by UID for how long claims are known to be gone. It lives in memory and by the monotonic clock: setting the
// machine's clock makes no absence longer, and a process that is restarted counts from the beginning.
type absences map[string]absence

type absence struct {
	// proven adds up the times between two successive answers that both reported the claim gone.
	proven time.Duration
	// last is when the last report was that; zero after an unknown one.
	last time.Time
}

// add takes in a report of a claim. It returns whether the claim is gone, and for long enough.
func (a absences) add(uid string, r report, now time.Time) bool {
	known, before := a[uid]
	switch r {
	case exists:
		delete(a, uid)
		return false
	case unknown:
		if before {
			a[uid] = absence{proven: known.proven}
		}
		return false
	case gone:
	}
	if gap := now.Sub(known.last); !known.last.IsZero() && gap <= longestGap {
		known.proven += gap
	}
	known.last = now
	a[uid] = known
	return known.proven >= goneFor
}
