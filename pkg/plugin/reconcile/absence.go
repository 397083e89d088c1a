package reconcile

import "time"

const (
	// goneFor is the time for which a claim must be known to be gone.
	goneFor = 5 * time.Minute
	// longestGap is the longest time between two answers during which nothing else is assumed to have happened.
	longestGap = 3 * Period
)

// report is the known existence of a claim.
type report int

const (
	// unknown: the API server was not queried, or did not answer.
	unknown report = iota
	// exists: the claim exists, or a container uses its devices.
	exists
	// gone: the API server stores no claim with that UID.
	gone
)

// absences contains, by UID, the time for which claims are known to be gone. It is kept in memory and uses the monotonic clock: setting the
// machine's clock makes no absence longer, and a restarted process counts from zero.
type absences map[string]absence

type absence struct {
	// proven adds up the times between two successive answers that both reported the claim gone.
	proven time.Duration
	// last is the time of the last report that the claim is gone; zero after an unknown one.
	last time.Time
}

// add adds a report about a claim. It returns whether the claim has been gone for long enough.
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
