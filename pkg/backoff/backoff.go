// Package backoff spaces the attempts at something that fails. It has no clock: the time is passed in.
package backoff

import "time"

// Backoff says when the next attempt is due: the first wait is First, each further one twice as long, up to Max. The zero value of the
// fields that are not exported is a Backoff whose first attempt is due at once.
type Backoff struct {
	First, Max time.Duration

	wait time.Duration
	next time.Time
}

// Due reports whether an attempt may be made.
func (b *Backoff) Due(now time.Time) bool { return !now.Before(b.next) }

// Next returns when the next attempt is due; the zero time: at once.
func (b *Backoff) Next() time.Time { return b.next }

// Defer puts the next attempt off, after a wait that is longer than the one before.
func (b *Backoff) Defer(now time.Time) {
	b.wait = min(max(2*b.wait, b.First), b.Max)
	b.next = now.Add(b.wait)
}

// Postpone puts the next attempt off by the wait of the last time, which stays as long as it is.
func (b *Backoff) Postpone(now time.Time) { b.next = now.Add(b.wait) }

// Reset makes an attempt due at once, and the wait after it the first one.
func (b *Backoff) Reset() { b.wait, b.next = 0, time.Time{} }
