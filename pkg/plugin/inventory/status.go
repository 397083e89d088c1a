package inventory

import "time"

// Status is the result of the latest inspection, for probes, logs and metrics.
type Status struct {
	// Err says why there is no usable driver; nil if there is one.
	Err error
	// Since is the time at which the driver became usable, or at which the current run of failures began.
	Since time.Time
	// Checked is the time of the last inspection; zero before the first one.
	Checked time.Time
	// Failures counts the inspections in a row that found no usable driver.
	Failures int
	// GPUs and Faults count the GPUs that answer and those that do not.
	GPUs, Faults int
}

// Usable reports whether there is a usable driver.
func (s Status) Usable() bool { return s.Err == nil }

// after returns the status after an inspection with that view.
func (s Status) after(v *View, now time.Time) *Status {
	next := Status{Err: v.Err, Since: s.Since, Checked: now, Faults: len(v.Node.Faults)}
	for i := range v.Node.GPUs {
		if !v.Node.GPUs[i].Lost {
			next.GPUs++
		}
	}
	if s.Checked.IsZero() || s.Usable() != next.Usable() {
		next.Since = now
	}
	if !next.Usable() {
		next.Failures = s.Failures + 1
	}
	return &next
}
