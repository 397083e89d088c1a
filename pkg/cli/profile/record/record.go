package record

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/reports"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

const (
	// unasked is the maximum number of sessions that are commanded without a question.
	unasked = 20
	// maxLead limits how far in the future a window begins if the user does not choose its beginning.
	maxLead = time.Minute
)

// Command is a command of a user.
type Command struct {
	// Spec is its verb and its options.
	Spec v1alpha1.SessionCommandSpec
	// Namespace is the namespace of the names or of the selection; "": the selection is for all namespaces.
	Namespace string
	// Names are names of sessions, or of claims for Arm and Disarm. Without names, Selection selects sessions.
	Names       []string
	Selection   reports.Selection
	DryRun, Yes bool
}

// Console is how a command and its user communicate.
type Console struct {
	// Print writes a line of the result, Say another line. Both escape it.
	Print, Say func(format string, values ...any)
	// Ask asks a question; nil if stdin is not a terminal.
	Ask func(ctx context.Context, question string) (bool, error)
	// Missing warns about nodes whose sessions are missing from a list.
	Missing func(silent, truncated []string)
	// Program is the beginning of a command line for the same cluster, without the namespace.
	Program string
}

// Run sends a command and waits until it is carried out. It returns an error if one session is not as commanded, or a node is silent.
func Run(ctx context.Context, client *reports.Client, command Command, console Console) error {
	r := &run{Command: command, Console: console, client: client, targets: map[key]*target{}, listed: map[string]bool{}}
	if err := r.find(ctx); err != nil {
		return err
	}
	if len(r.order) == 0 {
		return r.nothing()
	}
	if err := r.confirm(ctx); err != nil {
		return err
	}
	r.window()
	silent := r.send(ctx)
	switch {
	case ctx.Err() != nil:
		return r.interrupted()
	case r.DryRun || !r.ofSessions():
		r.answered()
	default:
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
	return r.outcome(silent)
}

// key names a session or claim.
type key struct{ namespace, name string }

// target is a session or claim of a command.
type target struct {
	key
	// session is the session in the last list that contained it, nil if there was none.
	session *v1alpha1.Session
	// id is the id of the command that was sent; "" if none was, or if it was refused.
	id string
	// seen: a list has contained the command. Since missing, lists contain neither the command nor its end.
	seen    bool
	missing time.Time
	// over: its command is not waited for. ended: no recording of the command continues. fault is why it is not as commanded.
	over, ended bool
	fault       string
}

// run is one command.
type run struct {
	Command
	Console
	client  *reports.Client
	targets map[key]*target
	// order are the targets in the order of namespaces and names.
	order []*target
	// listed are the silent nodes of the list that selected sessions.
	listed map[string]bool
}

// ofSessions reports whether the command is for sessions.
func (r *run) ofSessions() bool {
	return r.Spec.Verb != v1alpha1.SessionArm && r.Spec.Verb != v1alpha1.SessionDisarm
}

// windowed reports whether the command records a window of which beginning and end are known.
func (r *run) windowed() bool { return r.Spec.At != nil && r.Spec.Duration != nil }

// add returns the target of that name.
func (r *run) add(namespace, name string) *target {
	k := key{namespace, name}
	t := r.targets[k]
	if t == nil {
		t = &target{key: k}
		r.targets[k] = t
		r.order = append(r.order, t)
	}
	return t
}

// scope selects the sessions of a list.
func (r *run) scope() reports.Selection {
	switch len(r.Names) {
	case 0:
		return r.Selection
	case 1:
		return reports.Selection{Fields: "metadata.name=" + r.Names[0]}
	}
	return reports.Selection{}
}

// find finds the targets. Named sessions are listed only if the beginning of the window depends on their nodes.
func (r *run) find(ctx context.Context) error {
	for _, name := range r.Names {
		r.add(r.Namespace, name)
	}
	if len(r.Names) > 0 && (r.Spec.Verb != v1alpha1.SessionStart || r.Spec.Duration == nil || r.Spec.At != nil) {
		return nil
	}
	list, err := r.client.ListSessions(ctx, r.Namespace, r.scope())
	if err != nil {
		return err
	}
	if len(r.Names) == 0 {
		r.Missing(list.SilentNodes, list.TruncatedNodes)
		for _, node := range list.SilentNodes {
			r.listed[node] = true
		}
	}
	for i := range list.Items {
		s := &list.Items[i]
		if t := r.targets[key{s.Namespace, s.Name}]; t != nil {
			t.session = s
		} else if len(r.Names) == 0 && (r.Spec.Verb == v1alpha1.SessionStart || active(s)) {
			r.add(s.Namespace, s.Name).session = s
		}
	}
	slices.SortFunc(r.order, func(a, b *target) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return nil
}

// active reports whether a session records or will record: Stop and Cancel have no effect on other sessions.
func active(s *v1alpha1.Session) bool {
	last := s.Status.LastCommand
	return s.Status.State != string(session.Waiting) || last != nil && last.Verb == v1alpha1.SessionStart && last.Outcome == string(session.Open)
}

// nothing is the result of a command that selects no session.
func (r *run) nothing() error {
	where := "in all namespaces"
	if r.Namespace != "" {
		where = "in namespace " + r.Namespace
	}
	switch {
	case r.Spec.Verb == v1alpha1.SessionStart:
		return fmt.Errorf("no sessions match %s; kubectl prism profile sessions prints the existing ones", where)
	case len(r.listed) > 0:
		return fmt.Errorf("no matching sessions record %s, and %s did not answer", where, reports.Nodes(sorted(r.listed)))
	}
	r.Say("No matching sessions record %s", where)
	return nil
}

// confirm asks before a command for many sessions.
func (r *run) confirm(ctx context.Context) error {
	if len(r.order) <= unasked || r.Yes || r.DryRun || !r.ofSessions() {
		return nil
	}
	verb := strings.ToLower(string(r.Spec.Verb))
	if r.Ask == nil {
		return fmt.Errorf("%s is for %s: confirm it with --yes; stdin is not a terminal", verb, r.sizes())
	}
	yes, err := r.Ask(ctx, fmt.Sprintf("%s recordings of %s?", strings.ToUpper(verb[:1])+verb[1:], r.sizes()))
	if err == nil && !yes {
		err = fmt.Errorf("not confirmed: %s was not sent", verb)
	}
	return err
}

// sizes counts the targets.
func (r *run) sizes() string {
	text := fmt.Sprintf("%d sessions", len(r.order))
	if namespaces := r.count(func(t *target) string { return t.namespace }); len(namespaces) > 1 {
		text += fmt.Sprintf(" of %d namespaces", len(namespaces))
	}
	if nodes := r.count(node); len(nodes) > 1 {
		text += fmt.Sprintf(" on %d nodes", len(nodes))
	}
	return text
}

// count counts the targets by a property.
func (r *run) count(of func(*target) string) map[string]int {
	counts := map[string]int{}
	for _, t := range r.order {
		counts[of(t)]++
	}
	return counts
}

// node returns the node of a target, "" if it is unknown.
func node(t *target) string {
	if t.session == nil {
		return ""
	}
	return t.session.Spec.Node
}

// window chooses the beginning of a window: the sessions of the fullest node need the longest lead. The time of the server has whole seconds,
// so the beginning is the next whole second.
func (r *run) window() {
	if r.Spec.Verb != v1alpha1.SessionStart || r.Spec.Duration == nil || r.Spec.At != nil {
		return
	}
	fullest := 0
	for _, count := range r.count(node) {
		fullest = max(fullest, count)
	}
	at := r.client.Now().Add(min(session.Lead(fullest), maxLead))
	if whole := at.Truncate(time.Second); at.After(whole) {
		at = whole.Add(time.Second)
	}
	r.Spec.At = new(metav1.NewMicroTime(at.UTC()))
}
