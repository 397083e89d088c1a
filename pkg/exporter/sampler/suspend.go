package sampler

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errSuspended ends a session because the GPUs were released.
var errSuspended = errors.New("the GPUs are released")

// SuspendedError is the error of a Status while the sampler has no session because the GPUs are released for maintenance.
type SuspendedError struct{ Until time.Time }

// Error names the end.
func (e *SuspendedError) Error() string {
	return fmt.Sprintf("GPUs released for maintenance until %s", e.Until.UTC().Format(time.RFC3339))
}

// Suspend closes the session, so that the GPUs can be reset, and opens none until that time; none of the GPUs has values then. A time in
// the past allows sessions again. Suspend does not wait: calls that have begun end within their deadline.
func (s *Sampler) Suspend(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspended = until
	close(s.suspension)
	s.suspension = make(chan struct{})
	if s.crew != nil && time.Now().Before(until) {
		s.crew.end(errSuspended)
	}
}

// crewed stores that a crew works in the session, and reports whether it may.
func (s *Sampler) crewed(c *crew) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crew = c
	return !time.Now().Before(s.suspended)
}

// suspendedUntil returns until when no session may be open, and a channel that is closed when that changes.
func (s *Sampler) suspendedUntil() (time.Time, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspended, s.suspension
}

// resumed waits until a session may be opened; false if the context ends before.
func (s *Sampler) resumed(ctx context.Context) bool {
	var reported time.Time
	for {
		until, changed := s.suspendedUntil()
		left := time.Until(until)
		if left <= 0 || ctx.Err() != nil {
			break
		}
		if !reported.Equal(until) {
			reported = until
			s.lose(&SuspendedError{until})
			s.opts.Log.Info("GPUs released for maintenance, the driver is closed", "until", until)
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	if !reported.IsZero() && ctx.Err() == nil {
		s.expectReleased()
		s.opts.Log.Info("Maintenance of GPUs ended, opening the driver")
	}
	return ctx.Err() == nil
}

// expectReleased marks the GPUs that were released as down unless they respond in time.
func (s *Sampler) expectReleased() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gpus {
		if g.Released {
			s.expect(g.Identity, s.opts.Interval)
		}
	}
}
