package record_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/profile/record"
	"github.com/prism-gpu/prism/pkg/cli/reports"
)

const apis = "/apis/profiles.gpu.prism.dev/v1alpha1"

// process is a session and how it carries out commands.
type process struct {
	v1alpha1.Session
	// late is when a recording begins after the window, or after the command without a window; negative: before.
	late time.Duration
	// early is how long before the end of the window a recording ends.
	early time.Duration
	// outcome replaces the last outcome, message explains it.
	outcome, message string
	// gone is how long after the command the process exits.
	gone time.Duration
	// hides the command, or shows another one of that verb once it records.
	hides bool
	other v1alpha1.SessionVerb
	// refusal refuses commands.
	refusal string

	commanded time.Time
	spec      v1alpha1.SessionCommandSpec
}

// created is a command that the server received.
type created struct {
	namespace string
	v1alpha1.SessionCommandSpec
	dryRun bool
}

// fake answers like the aggregated API.
type fake struct {
	mu        sync.Mutex
	processes []*process
	// silent, truncated and clocks are parts of answers; deaf nodes answer lists but no commands.
	silent, truncated, deaf []string
	clocks                  []v1alpha1.NodeClock
	// intercept replaces the answer if it returns true.
	intercept func(w http.ResponseWriter, r *http.Request) bool
	// broken is the number of requests that have no answer from now on; the first of a command is carried out.
	broken int
	// ahead is how far the clock of the server is ahead.
	ahead time.Duration
	// thinks is how long the user needs for an answer.
	thinks   time.Duration
	commands []created
	lists    []string
}

// add adds a session of node-1 in namespace team.
func (f *fake) add(name string) *process {
	p := &process{late: -time.Second}
	p.Name, p.Namespace = name, "team"
	p.Spec = v1alpha1.SessionSpec{Claim: "gpu", ClaimUID: "u", Pod: "train", Container: "main", Node: "node-1", Process: "python3", PID: 7}
	p.Status = v1alpha1.SessionStatus{State: "Waiting"}
	f.processes = append(f.processes, p)
	return p
}

// addMany adds sessions in a namespace and on a node.
func (f *fake) addMany(count int, namespace, node string) {
	for i := range count {
		p := f.add(fmt.Sprintf("%s-%04d", node, i))
		p.Namespace, p.Spec.Node = namespace, node
	}
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	w.Header().Set("Date", time.Now().Add(f.ahead).UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Type", "application/json")
	switch {
	case f.intercept != nil && f.intercept(w, r):
	case r.Method == http.MethodPost:
		f.create(w, r)
	default:
		f.list(w, r)
	}
	if f.broken > 0 {
		f.broken--
		return nil, fmt.Errorf("connection reset")
	}
	return w.Result(), nil
}

func namespaceOf(r *http.Request) string {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, apis+"/namespaces/"), "/")
	if len(parts) == 2 {
		return parts[0]
	}
	return ""
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	query, namespace := r.URL.Query(), namespaceOf(r)
	f.lists = append(f.lists, namespace+"?"+query.Get("fieldSelector")+"&"+query.Get("labelSelector"))
	selector, _ := labels.Parse(query.Get("labelSelector"))
	of, _ := fields.ParseSelector(query.Get("fieldSelector"))
	list := v1alpha1.SessionList{SilentNodes: f.silent, TruncatedNodes: f.truncated}
	for _, p := range f.processes {
		s, exists := p.now()
		set := fields.Set{"metadata.name": s.Name, "spec.pod": s.Spec.Pod, "spec.node": s.Spec.Node, "status.state": s.Status.State}
		if exists && (namespace == "" || namespace == s.Namespace) && !slices.Contains(f.silent, s.Spec.Node) && !slices.Contains(f.truncated, s.Spec.Node) &&
			selector.Matches(labels.Set(s.Labels)) && of.Matches(set) {
			list.Items = append(list.Items, s)
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (f *fake) create(w http.ResponseWriter, r *http.Request) {
	var command v1alpha1.SessionCommand
	if err := json.NewDecoder(r.Body).Decode(&command); err != nil {
		failure(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	c := created{namespaceOf(r), command.Spec, r.URL.Query().Get("dryRun") == "All"}
	f.commands = append(f.commands, c)
	status := &command.Status
	status.SilentNodes, status.Clocks = append(slices.Clone(f.silent), f.deaf...), f.clocks
	refuse := func(name, reason string) {
		status.Refused = append(status.Refused, v1alpha1.RefusedSession{Session: name, Reason: reason})
	}
	for _, name := range c.Claims {
		status.Names = append(status.Names, name)
		status.Accepted++
	}
	for _, p := range f.processes {
		if p.Namespace != c.namespace || c.Selection == nil && !slices.Contains(c.Sessions, p.Name) || slices.Contains(status.SilentNodes, p.Spec.Node) {
			continue
		}
		if p.refusal != "" {
			refuse(p.Name, p.refusal)
			continue
		}
		if !c.dryRun && p.spec.ID != c.ID {
			p.commanded, p.spec = time.Now(), c.SessionCommandSpec
		}
		status.Accepted++
		if len(status.Names) < 1000 {
			status.Names = append(status.Names, p.Name)
		}
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(command)
}

// now returns the session as a list contains it.
func (p *process) now() (s v1alpha1.Session, exists bool) {
	s = p.Session
	if p.commanded.IsZero() {
		return s, true
	}
	if p.gone > 0 && time.Since(p.commanded) >= p.gone {
		return s, false
	}
	if p.hides {
		return s, true
	}
	last := &v1alpha1.LastCommand{ID: p.spec.ID, Verb: p.spec.Verb, Outcome: "Open"}
	s.Status.LastCommand = last
	if p.spec.Verb != v1alpha1.SessionStart {
		if time.Since(p.commanded) > 2*time.Second {
			last.Outcome, last.Message = p.outcome, p.message
			last.Report = strings.Replace(p.Name, "-w", "-s", 1)
			s.Status.State = "Waiting"
		}
		return s, true
	}
	begun := p.commanded.Add(time.Second)
	if p.spec.At != nil {
		begun = p.spec.At.Add(p.late)
	}
	if time.Now().Before(begun) {
		return s, true
	}
	s.Status.State, last.Outcome, last.Begun = "Recording", "Recording", new(metav1.NewMicroTime(begun))
	if p.other != "" {
		s.Status.LastCommand = &v1alpha1.LastCommand{ID: "another", Verb: p.other, Outcome: "Recorded"}
	}
	if p.outcome == "Failed" || p.outcome == "NoAnswer" {
		last.Outcome, last.Message, last.Begun, s.Status.State = p.outcome, p.message, nil, "Waiting"
		return s, true
	}
	if p.spec.Duration == nil {
		return s, true
	}
	ended := p.spec.At.Add(p.spec.Duration.Duration - p.early)
	if time.Now().After(ended.Add(time.Second)) {
		last.Outcome, last.Ended, s.Status.State = "Recorded", new(metav1.NewMicroTime(ended)), "Waiting"
		last.Report = strings.Replace(p.Name, "-w", "-s", 1)
	}
	return s, true
}

func failure(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: message,
	})
}

// result is the output of a command.
type result struct {
	out, said []string
	asked     string
}

// run runs a command in namespace team.
func (f *fake) run(ctx context.Context, t *testing.T, c record.Command, answer ...bool) (result, error) {
	t.Helper()
	client, err := reports.New(&rest.Config{Host: "http://cluster.example", Transport: f})
	require.NoError(t, err)
	var got result
	console := record.Console{
		Print:   func(format string, values ...any) { got.out = append(got.out, fmt.Sprintf(format, values...)) },
		Say:     func(format string, values ...any) { got.said = append(got.said, fmt.Sprintf(format, values...)) },
		Program: "kubectl prism --context=prod",
		Missing: func(silent, truncated []string) {
			if len(silent)+len(truncated) > 0 {
				got.said = append(got.said, fmt.Sprintf("missing %v %v", silent, truncated))
			}
		},
	}
	if len(answer) > 0 {
		console.Ask = func(_ context.Context, question string) (bool, error) {
			got.asked = question
			<-time.After(f.thinks)
			return answer[0], nil
		}
	}
	err = record.Run(ctx, client, c, console)
	return got, err
}

// start is a command for all sessions of namespace team.
func start(window time.Duration) record.Command {
	c := record.Command{Spec: v1alpha1.SessionCommandSpec{Verb: v1alpha1.SessionStart}, Namespace: "team"}
	if window > 0 {
		c.Spec.Duration = &metav1.Duration{Duration: window}
	}
	return c
}

// named is a command for named sessions.
func named(verb v1alpha1.SessionVerb, names ...string) record.Command {
	return record.Command{Spec: v1alpha1.SessionCommandSpec{Verb: verb}, Namespace: "team", Names: names}
}
