package kube

// SetAttempts replaces how often a status is tried to be written, before Run.
func (s *Statuses) SetAttempts(n int) { s.attempts = n }
