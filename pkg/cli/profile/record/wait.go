package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/reports"
)

const (
	// The first and the longest interval of lists.
	first   = time.Second
	longest = 5 * time.Second
	// giveUp is how long a list, a node or a session may be silent.
	giveUp = time.Minute
)

// wait lists the sessions until the command of each is over.
func (r *run) wait(ctx context.Context) error {
	var failing time.Time
	for interval := first; r.open() > 0; interval = min(interval*3/2, longest) {
		select {
		case <-ctx.Done():
			return r.interrupted()
		case <-time.After(interval):
		}
		list, err := r.client.ListSessions(ctx, r.Namespace, r.scope().WithoutState())
		switch {
		case ctx.Err() != nil:
			return r.interrupted()
		case err == nil:
			failing = time.Time{}
			r.compare(list)
			continue
		case failing.IsZero():
			failing = time.Now()
		}
		if !errors.Is(err, reports.ErrRetry) || time.Since(failing) >= giveUp {
			r.remedy()
			return fmt.Errorf("waiting for %d sessions: %w; the command continues", r.open(), err)
		}
	}
	return nil
}

// open counts the targets that are waited for.
func (r *run) open() (count int) {
	for _, t := range r.order {
		if !t.over {
			count++
		}
	}
	return count
}

// compare updates the targets from a list.
func (r *run) compare(list *v1alpha1.SessionList) {
	for i := range list.Items {
		s := &list.Items[i]
		if t := r.targets[key{s.Namespace, s.Name}]; t != nil && !t.over {
			t.session = s
			if last := s.Status.LastCommand; last != nil && last.ID == t.id {
				t.seen, t.missing = true, time.Time{}
				r.judge(t, last)
				continue
			}
			r.other(t)
		}
	}
	contained := map[key]bool{}
	for _, s := range list.Items {
		contained[key{s.Namespace, s.Name}] = true
	}
	absent := slices.Concat(list.SilentNodes, list.TruncatedNodes)
	for _, t := range r.order {
		if !t.over && !contained[t.key] {
			r.absent(t, absent)
		}
	}
}

// judge notes the outcome of a command.
func (r *run) judge(t *target, last *v1alpha1.LastCommand) {
	if done, ended, fault := r.verdict(last); done {
		text := last.Outcome
		if last.Begun != nil {
			text += ", began " + stamp(last.Begun.Time)
		}
		if last.Report != "" {
			text += ", report " + last.Report
		}
		if last.Message != "" {
			text += ": " + last.Message
		}
		r.end(t, ended, fault, text)
	}
}

// other handles a session whose last command is another one.
func (r *run) other(t *target) {
	if !t.seen {
		r.lose(t, "the session does not show the command")
		return
	}
	text := "another command followed"
	if last := t.session.Status.LastCommand; last != nil {
		text = strings.TrimSpace("another command followed: "+string(last.Verb)) + ", " + last.Outcome
	}
	r.end(t, true, text, text)
}

// absent handles a session that a list does not contain; the sessions of silent nodes are missing.
func (r *run) absent(t *target, silent []string) {
	of := node(t)
	switch {
	case of != "" && slices.Contains(silent, of):
		r.lose(t, fmt.Sprintf("node %s did not answer for %s", of, giveUp))
	case of == "" && len(silent) > 0:
		r.lose(t, fmt.Sprintf("%s did not answer for %s", reports.Nodes(silent), giveUp))
	default:
		text := "its process has exited"
		if t.session != nil && t.seen && t.session.Status.LastCommand.Report != "" {
			text += ", report " + t.session.Status.LastCommand.Report
		}
		r.end(t, true, "its process has exited", text)
	}
}

// lose ends waiting if a target is missing for too long.
func (r *run) lose(t *target, fault string) {
	if t.missing.IsZero() {
		t.missing = time.Now()
	}
	if time.Since(t.missing) >= giveUp {
		r.end(t, false, fault, fault)
	}
}

// end notes that a target is not waited for, and prints why.
func (r *run) end(t *target, ended bool, fault, text string) {
	t.over, t.ended, t.fault = true, ended, fault
	r.Print("%s: %s", r.described(t), text)
}

// label names a target.
func (r *run) label(t *target) string {
	switch {
	case !r.ofSessions():
		return "claim " + t.name
	case r.Namespace == "":
		return t.namespace + "/" + t.name
	}
	return t.name
}

// described names a target and its process.
func (r *run) described(t *target) string {
	if t.session == nil {
		return r.label(t)
	}
	of := t.session.Spec
	var words []string
	for _, word := range []string{strings.Trim(of.Pod+"/"+of.Container, "/"), of.Process} {
		if word != "" {
			words = append(words, word)
		}
	}
	return strings.TrimSuffix(r.label(t)+" ("+strings.Join(words, " ")+")", " ()")
}

// stamp formats a time for the comparison with events in reports.
func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }

func sorted(set map[string]bool) []string {
	return slices.SortedFunc(maps.Keys(set), cmp.Compare[string])
}
