package kube

import "time"

// SetAttempts sets the maximum number of attempts to write a status, before Run.
func (s *Statuses) SetAttempts(n int) { s.attempts = n }

// SetDelay sets the delay of writes, before the first report.
func (s *Statuses) SetDelay(d time.Duration) { s.opts.Delay = d }
