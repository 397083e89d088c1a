package record

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/reports"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// faults are the sentences of outcomes.
var faults = map[session.Outcome]string{
	session.NoAnswer:         "the session did not answer",
	session.Cancelled:        "the recording was cancelled",
	session.AlreadyRecording: "it was recording already",
	session.NotRecording:     "it was not recording",
	session.StoreFull:        "the reports of its claim reached their limit",
	session.ProcessEnded:     "its process has exited",
	session.Failed:           "the profiler failed",
}

// verdict returns whether a command is over, whether no recording of it continues, and why the session is not as commanded, "" if it is.
func (r *run) verdict(last *v1alpha1.LastCommand) (done, ended bool, fault string) {
	outcome := session.Outcome(last.Outcome)
	switch {
	case outcome == session.Begun:
		return r.Spec.Verb == v1alpha1.SessionStart && !r.windowed(), false, ""
	case !outcome.Final():
		return false, false, ""
	case outcome == session.NoAnswer:
		return true, false, faults[outcome]
	case outcome == session.Recorded && r.windowed():
		return true, true, r.missed(last)
	case outcome == session.Recorded && r.Spec.Verb != v1alpha1.SessionCancel,
		outcome == session.Cancelled && r.Spec.Verb == v1alpha1.SessionCancel,
		outcome == session.NotRecording && r.Spec.Verb != v1alpha1.SessionStart: // a Start that had not begun was replaced
		return true, true, ""
	}
	fault = faults[outcome]
	if fault == "" {
		fault = last.Outcome
	}
	if last.Message != "" {
		fault += ": " + last.Message
	}
	return true, true, fault
}

// missed returns the part of the window that a recording misses, "" if it covers the window.
func (r *run) missed(last *v1alpha1.LastCommand) string {
	from := r.Spec.At.Time
	to := from.Add(r.Spec.Duration.Duration)
	var missed []string
	switch {
	case last.Begun == nil:
		missed = append(missed, "began at an unknown time")
	case last.Begun.After(from):
		missed = append(missed, "began "+seconds(last.Begun.Sub(from))+" after the window began")
	}
	switch {
	case last.Ended == nil:
		missed = append(missed, "ended at an unknown time")
	case last.Ended.Time.Before(to):
		missed = append(missed, "ended "+seconds(to.Sub(last.Ended.Time))+" before the window ended")
	}
	return strings.Join(missed, ", ")
}

// seconds formats a duration that is not 0.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%.1f s", max(d, 100*time.Millisecond).Seconds())
}

// outcome prints the summary, and returns an error unless all sessions are as commanded.
func (r *run) outcome(silent map[string]bool) error {
	var failed []*target
	for _, t := range r.order {
		if t.fault != "" {
			failed = append(failed, t)
		}
	}
	done, not := r.words()
	if !r.DryRun && r.ofSessions() {
		r.Print("%d of %d %s", len(r.order)-len(failed), len(r.order), done)
		if r.windowed() {
			for _, t := range failed {
				r.Print("  %s: %s", r.described(t), t.fault)
			}
		}
	}
	var causes []string
	if len(failed) > 0 {
		causes = append(causes, fmt.Sprintf("%d of %d %s", len(failed), len(r.order), not))
	}
	if len(silent) > 0 {
		causes = append(causes, reports.Nodes(sorted(silent))+" did not answer")
	}
	if len(causes) == 0 {
		return nil
	}
	return errors.New(strings.Join(causes, "; "))
}

// words returns the ends of the sentences of the summary and of the error.
func (r *run) words() (done, not string) {
	switch {
	case r.DryRun:
		return "", "would be refused"
	case r.windowed():
		window := fmt.Sprintf("the whole window of %s from %s", r.Spec.Duration.Duration, stamp(r.Spec.At.Time))
		return "recorded " + window, "did not record the whole window"
	}
	switch r.Spec.Verb {
	case v1alpha1.SessionStart:
		return "began to record", "were not started"
	case v1alpha1.SessionStop:
		return "stopped", "were not stopped"
	case v1alpha1.SessionCancel:
		return "cancelled", "were not cancelled"
	case v1alpha1.SessionArm:
		return "", "were not armed"
	case v1alpha1.SessionDisarm:
		return "", "were not disarmed"
	}
	return "", "failed"
}
