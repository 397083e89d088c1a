package record

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/reports"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

const (
	// atOnce is the number of namespaces to which commands are sent at once: a controller answers few at once.
	atOnce = 4
	// tries is how often a command is sent if there is no answer.
	tries = 4
)

// sent is the answer of the server for a namespace.
type sent struct {
	namespace string
	spec      v1alpha1.SessionCommandSpec
	status    *v1alpha1.SessionCommandStatus
	err       error
}

// send sends a command to each namespace, and returns the nodes that did not answer although they may have sessions of the command.
func (r *run) send(ctx context.Context) map[string]bool {
	var all []*sent
	for _, namespace := range slices.Sorted(maps.Keys(r.count(func(t *target) string { return t.namespace }))) {
		all = append(all, &sent{namespace: namespace, spec: r.spec(namespace)})
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, s := range all {
		for _, t := range r.of(s.namespace) {
			t.id = s.spec.ID
		}
		group.Go(func() error {
			s.status, s.err = r.create(ctx, s)
			return nil
		})
	}
	_ = group.Wait()
	silent := maps.Clone(r.listed)
	clocks := map[string]bool{}
	for _, s := range all {
		if ctx.Err() != nil && s.err != nil {
			continue // the command may be carried out
		}
		for _, node := range r.note(s) {
			silent[node] = true
		}
		if s.status != nil {
			r.clocks(s.status.Clocks, clocks)
		}
	}
	return silent
}

// of returns the targets of a namespace.
func (r *run) of(namespace string) (all []*target) {
	for _, t := range r.order {
		if t.namespace == namespace {
			all = append(all, t)
		}
	}
	return all
}

// spec returns the command for a namespace: it names the sessions that were listed, unless there are too many.
func (r *run) spec(namespace string) v1alpha1.SessionCommandSpec {
	spec := r.Spec
	spec.ID = string(uuid.NewUUID())
	var names []string
	for _, t := range r.of(namespace) {
		names = append(names, t.name)
	}
	switch {
	case !r.ofSessions():
		spec.Claims = names
	case len(names) <= session.MaxNames:
		spec.Sessions = names
	default:
		labels, fields, _ := r.Selection.Selectors() // the list was selected with them
		spec.Selection = &v1alpha1.SessionSelection{LabelSelector: labels, FieldSelector: fields}
	}
	return spec
}

// create sends a command, again if there is no answer.
func (r *run) create(ctx context.Context, s *sent) (status *v1alpha1.SessionCommandStatus, err error) {
	wait := time.Second
	for try := range tries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(wait):
			}
			wait *= 2
		}
		status, err = r.client.Command(ctx, s.namespace, s.spec, r.DryRun)
		if !errors.Is(err, reports.ErrRetry) {
			break
		}
	}
	return status, err
}

// note notes the answer for the targets of a namespace, and returns the nodes that may have some of them and did not answer.
func (r *run) note(s *sent) []string {
	if s.err != nil {
		r.Say("error: %v", s.err)
		if errors.Is(s.err, reports.ErrRetry) {
			r.Say("The command may be carried out nevertheless; kubectl prism profile sessions -n %s shows it", s.namespace)
		}
		for _, t := range r.of(s.namespace) {
			t.refuse("the command for namespace " + s.namespace + " failed")
		}
		return nil
	}
	answered := map[string]bool{}
	for _, name := range s.status.Names {
		answered[name] = true
		r.add(s.namespace, name).id = s.spec.ID // a session may be new since the list
	}
	for _, refusal := range s.status.Refused {
		answered[refusal.Session] = true
		t := r.add(s.namespace, refusal.Session)
		t.refuse("refused: " + refusal.Reason)
		r.Print("%s: %s", r.label(t), t.fault)
	}
	if s.spec.Selection != nil {
		if len(s.status.SilentNodes) > 0 {
			r.Say("Warning: %s did not answer: the command may be missing there", reports.Nodes(s.status.SilentNodes))
		}
		return s.status.SilentNodes
	}
	fault := "it does not exist"
	if len(s.status.SilentNodes) > 0 {
		fault = reports.Nodes(s.status.SilentNodes) + " did not answer: the command may be missing there"
	}
	unanswered := false
	for _, t := range r.of(s.namespace) {
		if !answered[t.name] {
			unanswered = true
			t.refuse(fault)
			r.Print("%s: %s", r.label(t), t.fault)
		}
	}
	if unanswered {
		return s.status.SilentNodes
	}
	return nil
}

// refuse notes that a command does not apply to a target.
func (t *target) refuse(why string) { t.id, t.over, t.ended, t.fault = "", true, true, why }

// clocks warns about each node whose clock differs.
func (r *run) clocks(clocks []v1alpha1.NodeClock, warned map[string]bool) {
	for _, c := range clocks {
		if warned[c.Node] {
			continue
		}
		warned[c.Node] = true
		offset, direction := c.OffsetMilliseconds, "ahead"
		if offset < 0 {
			offset, direction = -offset, "behind"
		}
		r.Say("Warning: the clock of node %s is %d ms %s; windows and times of its sessions follow it", c.Node, offset, direction)
	}
}

// answered prints the result of a command that nothing is waited for.
func (r *run) answered() {
	word := strings.ToLower(map[v1alpha1.SessionVerb]string{
		v1alpha1.SessionStart: "started", v1alpha1.SessionStop: "stopped", v1alpha1.SessionCancel: "cancelled",
		v1alpha1.SessionArm: "armed", v1alpha1.SessionDisarm: "disarmed",
	}[r.Spec.Verb])
	if r.DryRun {
		word = "would be " + word + " (dry run)"
	}
	for _, t := range r.order {
		if t.id != "" {
			r.Print("%s: %s", r.label(t), word)
		}
	}
}
