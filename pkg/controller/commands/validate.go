package commands

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	configs "github.com/prism-gpu/prism/api/v1alpha1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

const (
	// maxPast is how far in the past a window may begin: clocks differ, and the request takes time.
	maxPast = time.Minute
	// maxErrors limits the errors about one list.
	maxErrors = 10
	// minHz and maxHz limit samplingFrequencyHz, as in a ProfilerConfig.
	minHz, maxHz = 100, 8000
)

var (
	verbs = []v1alpha1.SessionVerb{
		v1alpha1.SessionStart, v1alpha1.SessionStop, v1alpha1.SessionCancel, v1alpha1.SessionArm, v1alpha1.SessionDisarm,
	}
	backtraces = []configs.Backtrace{configs.BacktraceNone, configs.BacktraceLBR, configs.BacktraceFramePointer, configs.BacktraceDWARF}
)

// Validate returns the errors of a command that is created now. Options without effect are errors too: they would be ignored.
func Validate(c *v1alpha1.SessionCommandSpec, now time.Time) (all field.ErrorList) {
	spec := field.NewPath("spec")
	switch {
	case c.ID == "":
		all = append(all, field.Required(spec.Child("id"), "a UUID that identifies the command"))
	case !session.ValidID.MatchString(c.ID):
		all = append(all, field.Invalid(spec.Child("id"), c.ID, "must be a UUID in lower case"))
	}
	if !slices.Contains(verbs, c.Verb) {
		return append(all, field.NotSupported(spec.Child("verb"), c.Verb, verbs))
	}
	if c.Verb == v1alpha1.SessionArm || c.Verb == v1alpha1.SessionDisarm {
		all = append(all, validateClaims(c, spec)...)
	} else {
		all = append(all, validateSessions(c, spec)...)
	}
	return append(all, validateOptions(c, spec, now)...)
}

// validateClaims validates the targets of a command for claims.
func validateClaims(c *v1alpha1.SessionCommandSpec, spec *field.Path) (all field.ErrorList) {
	with := "may not be set if verb is " + string(c.Verb)
	if len(c.Sessions) > 0 {
		all = append(all, field.Forbidden(spec.Child("sessions"), with))
	}
	if c.Selection != nil {
		all = append(all, field.Forbidden(spec.Child("selection"), with))
	}
	if len(c.Claims) == 0 {
		return append(all, field.Required(spec.Child("claims"), "names of ResourceClaims"))
	}
	return append(all, validateNames(c.Claims, spec.Child("claims"), validation.IsDNS1123Subdomain)...)
}

// validateSessions validates the targets of a command for sessions.
func validateSessions(c *v1alpha1.SessionCommandSpec, spec *field.Path) (all field.ErrorList) {
	if len(c.Claims) > 0 {
		all = append(all, field.Forbidden(spec.Child("claims"), "may not be set if verb is "+string(c.Verb)))
	}
	switch {
	case c.Selection != nil && len(c.Sessions) > 0:
		return append(all, field.Forbidden(spec.Child("selection"), "may not be set together with sessions"))
	case c.Selection != nil:
		return append(all, validateSelection(c.Selection, spec.Child("selection"))...)
	case len(c.Sessions) == 0:
		return append(all, field.Required(spec.Child("sessions"), "names of sessions, or a selection instead"))
	}
	return append(all, validateNames(c.Sessions, spec.Child("sessions"), validation.IsDNS1123Label)...)
}

func validateSelection(s *v1alpha1.SessionSelection, at *field.Path) (all field.ErrorList) {
	for _, one := range []struct {
		name, value string
		selection   session.Selection
	}{
		{"labelSelector", s.LabelSelector, session.Selection{Labels: s.LabelSelector}},
		{"fieldSelector", s.FieldSelector, session.Selection{Fields: s.FieldSelector}},
	} {
		if _, err := one.selection.Compile(); err != nil {
			all = append(all, field.Invalid(at.Child(one.name), one.value, strings.TrimPrefix(err.Error(), one.name+": ")))
		}
	}
	return all
}

func validateNames(names []string, at *field.Path, valid func(string) []string) (all field.ErrorList) {
	if len(names) > session.MaxNames {
		return field.ErrorList{field.TooMany(at, len(names), session.MaxNames)}
	}
	known := sets.New[string]()
	for i, name := range names {
		if len(all) == maxErrors {
			break
		}
		if because := valid(name); len(because) > 0 {
			all = append(all, field.Invalid(at.Index(i), name, strings.Join(because, "; ")))
		} else if known.Has(name) {
			all = append(all, field.Duplicate(at.Index(i), name))
		}
		known.Insert(name)
	}
	return all
}

// validateOptions validates the options of a Start, and refuses them for other verbs.
func validateOptions(c *v1alpha1.SessionCommandSpec, spec *field.Path, now time.Time) (all field.ErrorList) {
	if c.Verb != v1alpha1.SessionStart {
		for _, option := range []struct {
			name string
			set  bool
		}{
			{"at", c.At != nil}, {"duration", c.Duration != nil}, {"samplingFrequencyHz", c.SamplingFrequencyHz != nil}, {"backtrace", c.Backtrace != nil},
		} {
			if option.set {
				all = append(all, field.Forbidden(spec.Child(option.name), "has no effect if verb is "+string(c.Verb)))
			}
		}
		return all
	}
	all = append(all, validateWindow(c, spec, now)...)
	if hz := c.SamplingFrequencyHz; hz != nil && (*hz < minHz || *hz > maxHz) {
		all = append(all, field.Invalid(spec.Child("samplingFrequencyHz"), *hz, fmt.Sprintf("must be between %d and %d, inclusive", minHz, maxHz)))
	}
	if c.Backtrace != nil && !slices.Contains(backtraces, configs.Backtrace(*c.Backtrace)) {
		all = append(all, field.NotSupported(spec.Child("backtrace"), configs.Backtrace(*c.Backtrace), backtraces))
	}
	return all
}

func validateWindow(c *v1alpha1.SessionCommandSpec, spec *field.Path, now time.Time) (all field.ErrorList) {
	if d := c.Duration; d != nil && (d.Duration <= 0 || d.Duration > session.MaxDuration) {
		all = append(all, field.Invalid(spec.Child("duration"), d.Duration.String(),
			fmt.Sprintf("must be greater than 0 and at most %v", session.MaxDuration)))
	}
	if c.At == nil {
		return all
	}
	if c.Duration == nil {
		all = append(all, field.Required(spec.Child("duration"), "the length of the window that begins at the given time"))
	}
	switch ahead := c.At.Sub(now); {
	case ahead < -maxPast:
		all = append(all, field.Invalid(spec.Child("at"), c.At, "must not be in the past"))
	case ahead > session.MaxAhead:
		all = append(all, field.Invalid(spec.Child("at"), c.At, fmt.Sprintf("must be at most %v in the future", session.MaxAhead)))
	}
	return all
}

// ForNodes returns the form of a valid command that nodes receive.
func ForNodes(c *v1alpha1.SessionCommandSpec, namespace, namespaceUID string, dryRun bool) session.Command {
	to := session.Command{
		ID: c.ID, Verb: c.Verb, Namespace: namespace, NamespaceUID: namespaceUID, Sessions: c.Sessions, Claims: c.Claims, DryRun: dryRun,
	}
	if c.Selection != nil {
		to.Selection = &session.Selection{Labels: c.Selection.LabelSelector, Fields: c.Selection.FieldSelector}
	}
	if c.At != nil {
		to.At = c.At.Time
	}
	if c.Duration != nil {
		to.Duration = c.Duration.Duration
	}
	if c.SamplingFrequencyHz != nil {
		to.SamplingFrequencyHz = *c.SamplingFrequencyHz
	}
	if c.Backtrace != nil {
		to.Backtrace = *c.Backtrace
	}
	return to
}

// Targets returns the named sessions or claims; nil for a selection.
func Targets(c session.Command) []string {
	if c.Selection != nil {
		return nil
	}
	return slices.Concat(c.Sessions, c.Claims)
}
