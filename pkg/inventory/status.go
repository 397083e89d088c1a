package inventory

import "time"

// Status says how the latest inspection went, for probes, logs and metrics.
type Status struct {
	// Err says why there is no usable driver; nil when there is one.
	Err error
	// Since is when this began to be so: the driver to be usable, or the current run of failures.
	Since time.Time
	// Checked is when was inspected last; zero before the first inspection.
	Checked time.Time
	// Failures counts the inspections in a row that found no usable driver.
	Failures int
	// GPUs and Faults count the GPUs that answer and those that do not.
	GPUs, Faults int
}

// Usable reports whether there is a driver to work with.
func (s Status) Usable() bool { return s.Err == nil }

// after is the status once an inspection has shown that view.
func (s Status) after(v *View, now time.Time) *Status {
	next := Status{Err: v.Err, Since: s.Since, Checked: now, GPUs: len(v.Node.GPUs), Faults: len(v.Node.Faults)}
	if s.Checked.IsZero() || s.Usable() != next.Usable() {
		next.Since = now
	}
	if !next.Usable() {
		next.Failures = s.Failures + 1
	}
	return &next
}
