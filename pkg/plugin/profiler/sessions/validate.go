package sessions

import (
	"fmt"
	"time"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

const (
	// maxSkew is the maximum difference between the clocks of a controller, which checks the times of commands, and of the node.
	maxSkew = 2 * time.Minute
	// maxFrequency is the maximum frequency of CPU samples.
	maxFrequency = 8000
)

// problem is a rule, and whether a command breaks it.
type problem struct {
	is   bool
	text string
}

// validate returns the function that selects the sessions of a command; nil for a command for claims. Controllers have refused invalid
// commands with the names of fields.
func validate(c session.Command, now time.Time) (selects func(session.Session) bool, err error) {
	for _, p := range append(addressed(c), timed(c, now)...) {
		if p.is {
			return nil, fmt.Errorf("%w: %s", session.ErrInvalid, p.text)
		}
	}
	if arms(c.Verb) {
		return nil, nil
	}
	control := session.Control{ID: c.ID, Verb: c.Verb, Backtrace: c.Backtrace}
	if _, err := control.Encode(); err != nil {
		return nil, fmt.Errorf("%w: %w", session.ErrInvalid, err)
	}
	if c.Selection == nil {
		named := set(c.Sessions)
		return func(one session.Session) bool { return named[one.ID] }, nil
	}
	if selects, err = c.Selection.Compile(); err != nil {
		return nil, fmt.Errorf("%w: %w", session.ErrInvalid, err)
	}
	return selects, nil
}

// arms reports whether a verb is for claims.
func arms(verb session.Verb) bool {
	return verb == v1alpha1.SessionArm || verb == v1alpha1.SessionDisarm
}

// addressed checks the sessions or claims of a command.
func addressed(c session.Command) []problem {
	to := 0
	for _, is := range []bool{len(c.Sessions) > 0, len(c.Claims) > 0, c.Selection != nil} {
		if is {
			to++
		}
	}
	return []problem{
		{!session.ValidID.MatchString(c.ID), "id must be a UUID"},
		{c.Namespace == "", "namespace is required"},
		{to != 1, "exactly one of sessions, claims and selection is required"},
		{len(c.Claims) > 0 != arms(c.Verb), "claims are for the verbs Arm and Disarm, sessions and selection for all others"},
		{max(len(c.Sessions), len(c.Claims)) > session.MaxNames, fmt.Sprintf("at most %d sessions or claims can be named", session.MaxNames)},
	}
}

// timed checks the options of a command.
func timed(c session.Command, now time.Time) []problem {
	has := !c.At.IsZero() || c.Duration != 0 || c.SamplingFrequencyHz != 0 || c.Backtrace != ""
	outside := c.At.Before(now.Add(-maxSkew)) || c.At.After(now.Add(session.MaxAhead+maxSkew))
	return []problem{
		{has && c.Verb != v1alpha1.SessionStart, "at, duration, samplingFrequencyHz and backtrace have no effect without the verb Start"},
		{c.Duration < 0 || c.Duration > session.MaxDuration, fmt.Sprintf("duration must be at most %v", session.MaxDuration)},
		{!c.At.IsZero() && c.Duration == 0, "at requires duration"},
		{!c.At.IsZero() && outside, fmt.Sprintf("at must be at most %v ahead, and not in the past", session.MaxAhead)},
		{c.SamplingFrequencyHz < 0 || c.SamplingFrequencyHz > maxFrequency, fmt.Sprintf("samplingFrequencyHz must be at most %d", maxFrequency)},
	}
}

func set(names []string) map[string]bool {
	all := make(map[string]bool, len(names))
	for _, name := range names {
		all[name] = true
	}
	return all
}
