package kube

import "time"

// SetAttempts sets the maximum number of attempts to write a status, before Run.
func (s *Statuses) SetAttempts(n int) { s.attempts = n }

// SetDelay sets the delay of writes, before the first report.
func (s *Statuses) SetDelay(d time.Duration) { s.opts.Delay = d }

// SetQuiet replaces the condition for which reports wait, and the clock that limits the wait, before the first report.
func (s *Statuses) SetQuiet(quiet func() time.Duration, now func() time.Time) {
	s.opts.Quiet, s.opts.Now = quiet, now
}
