package kube

import "time"

// SetAttempts replaces how often a status is tried to be written, before Run.
func (s *Statuses) SetAttempts(n int) { s.attempts = n }

// SetDelay replaces how long a report waits, before the first report.
func (s *Statuses) SetDelay(d time.Duration) { s.opts.Delay = d }

// SetQuiet replaces what reports wait for and the clock that limits it, before the first report.
func (s *Statuses) SetQuiet(quiet func() time.Duration, now func() time.Time) {
	s.opts.Quiet, s.opts.Now = quiet, now
}
