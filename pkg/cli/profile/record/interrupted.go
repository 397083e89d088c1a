package record

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

// plain matches arguments that a shell does not interpret.
var plain = regexp.MustCompile(`^[\w./:=@%+,-]+$`)

// Quote quotes an argument for a shell, if necessary.
func Quote(argument string) string {
	if plain.MatchString(argument) {
		return argument
	}
	return "'" + strings.ReplaceAll(argument, "'", `'\''`) + "'"
}

// interrupted prints how to end what began.
func (r *run) interrupted() error {
	r.remedy()
	return errors.New("interrupted")
}

// remedy prints how to end recordings that may have begun.
func (r *run) remedy() {
	names := map[string][]string{}
	for _, t := range r.order {
		if t.id != "" && !t.ended {
			names[t.namespace] = append(names[t.namespace], t.name)
		}
	}
	switch {
	case len(names) == 0 || r.DryRun:
		return
	case r.Spec.Verb != v1alpha1.SessionStart:
		r.Say("The command is carried out nevertheless; kubectl prism profile sessions shows the sessions")
		return
	}
	r.Say("Recordings begin and continue nevertheless; to stop them, run:")
	if r.many(names) {
		r.Say("  %s profile stop%s --yes", r.Program, r.flags())
		return
	}
	for _, namespace := range slices.Sorted(maps.Keys(names)) {
		yes := ""
		if len(names[namespace]) > unasked {
			yes = " --yes"
		}
		r.Say("  %s profile stop -n %s %s%s", r.Program, namespace, strings.Join(names[namespace], " "), yes)
	}
}

// many reports whether the command line contains the selection instead of the names.
func (r *run) many(names map[string][]string) bool {
	count := 0
	for _, of := range names {
		count += len(of)
	}
	return len(r.Names) == 0 && count > unasked
}

// flags returns the flags that select the same sessions.
func (r *run) flags() string {
	text := " -A"
	if r.Namespace != "" {
		text = " -n " + r.Namespace
	}
	s := r.Selection.WithoutState()
	if s.Empty() {
		return text + " --all"
	}
	for _, flag := range []struct{ name, value string }{
		{"selector", s.Labels}, {"field-selector", s.Fields}, {"claim", s.Claim}, {"pod", s.Pod}, {"container", s.Container},
		{"process", s.Process}, {"node", s.Node},
	} {
		if flag.value != "" {
			text += fmt.Sprintf(" --%s=%s", flag.name, Quote(flag.value))
		}
	}
	return text
}
