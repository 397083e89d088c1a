package reconcile

import "time"

const (
	// goneFor is how long a claim must be known to be gone.
	goneFor = 5 * time.Minute
	// longestGap is the longest time between two answers of which it is believed that nothing else was true in between.
	longestGap = 3 * Period
)

// word is what was heard of a claim.
type word int

const (
	// silent: the API server could not be asked, or did not answer.
	silent word = iota
	// there: the claim is there, or a container has its devices.
	there
	// gone: the API server says that there is no claim of that UID.
	gone
)

// absences tells by UID how long claims are known to be gone. It lives in memory and by the monotonic clock: setting the
// machine's clock makes no absence longer, and a process that starts anew begins to count anew.
type absences map[string]absence

type absence struct {
	// proven adds up the times between two answers that came one after the other and both said that the claim is gone.
	proven time.Duration
	// last is when the last word was that; zero after a silence.
	last time.Time
}

// hear takes in what was heard of a claim now. It tells whether the claim is gone, and for long enough.
func (a absences) hear(uid string, w word, now time.Time) bool {
	known, before := a[uid]
	switch w {
	case there:
		delete(a, uid)
		return false
	case silent:
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
