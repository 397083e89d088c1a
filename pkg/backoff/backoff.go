// Package backoff spaces the retries of a failing operation. Callers pass in the time.
package backoff

import "time"

// Backoff says when the next attempt is due: the first wait is First, each further one is twice as long, up to Max. If only the exported
// fields are set, the first attempt is due at once.
type Backoff struct {
	First, Max time.Duration

	wait time.Duration
	next time.Time
}

// Due reports whether an attempt may be made.
func (b *Backoff) Due(now time.Time) bool { return !now.Before(b.next) }

// Next returns when the next attempt is due; the zero time: at once.
func (b *Backoff) Next() time.Time { return b.next }

// Defer schedules the next attempt after a longer wait than before.
func (b *Backoff) Defer(now time.Time) {
	b.wait = min(max(2*b.wait, b.First), b.Max)
	b.next = now.Add(b.wait)
}

// Postpone schedules the next attempt after the same wait as before.
func (b *Backoff) Postpone(now time.Time) { b.next = now.Add(b.wait) }

// Reset makes an attempt due at once, and the next wait First again.
func (b *Backoff) Reset() { b.wait, b.next = 0, time.Time{} }
