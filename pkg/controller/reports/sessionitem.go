package reports

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// sessionItem is a session.
type sessionItem struct{ session.Session }

var sessionKind = &kind{
	resource: "sessions", kind: "Session", optional: true, verb: "have", columns: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "Name of the session."},
		{Name: "Claim", Type: "string", Description: "ResourceClaim of the process."},
		{Name: "Pod", Type: "string", Description: "Pod of the process."},
		{Name: "Container", Type: "string", Description: "Container of the process."},
		{Name: "Process", Type: "string", Description: "Program of the process."},
		{Name: "State", Type: "string", Description: "Waiting, Starting, Recording or Ending."},
		{Name: "Since", Type: "string", Description: "Time since the state began."},
		{Name: "Last Command", Type: "string", Description: "The last command and its outcome."},
		{Name: "Age", Type: "string", Description: "Time since the process began."},
		{Name: "Node", Type: "string", Priority: 1, Description: "Node of the process."},
		{Name: "Report", Type: "string", Priority: 1, Description: "The report of the last command."},
		{Name: "Message", Type: "string", Priority: 1, Description: "The message of the last command."},
	},
}

func (sessionItem) kind() *kind { return sessionKind }

func (s sessionItem) process() session.Session { return s.Session }

func (s sessionItem) cost() int {
	const fields = 512
	size := fields + len(s.ID) + len(s.Namespace) + len(s.NamespaceUID) + len(s.Claim) + len(s.ClaimUID) + len(s.Pod) + len(s.Container) +
		len(s.Node) + len(s.Process) + len(s.Tool) + len(s.State)
	if s.Last != nil {
		size += len(s.Last.ID) + len(s.Last.Verb) + len(s.Last.Outcome) + len(s.Last.Report) + len(s.Last.Message)
	}
	return size
}

// object returns a Session. Its UID is constant: the name contains the start of the process.
func (s sessionItem) object() metav1.ObjectMetaAccessor {
	o := &v1alpha1.Session{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: sessionKind.kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: s.ID, Namespace: s.Namespace, UID: types.UID(report.Report{Node: s.Node, ClaimUID: s.ClaimUID, ID: s.ID}.ObjectUID()),
			CreationTimestamp: metav1.NewTime(s.Started), Labels: s.Labels(),
		},
		Spec: v1alpha1.SessionSpec{
			Claim: s.Claim, ClaimUID: s.ClaimUID, Pod: s.Pod, Container: s.Container, Node: s.Node, Process: s.Process, PID: s.PID, Tool: s.Tool,
		},
		Status: v1alpha1.SessionStatus{State: string(s.State), Since: metav1.NewTime(s.Since)},
	}
	if last := s.Last; last != nil {
		o.Status.LastCommand = &v1alpha1.LastCommand{
			ID: last.ID, Verb: last.Verb, Outcome: string(last.Outcome), Begun: micro(last.Begun), Ended: micro(last.Ended), Report: last.Report,
			Message: last.Message,
		}
	}
	return o
}

func micro(t *time.Time) *metav1.MicroTime {
	if t == nil {
		return nil
	}
	return new(metav1.NewMicroTime(*t))
}

func (s sessionItem) cells() []any {
	command, made, message := "<none>", "", ""
	if last := s.Last; last != nil {
		command, made, message = string(last.Outcome), last.Report, last.Message
		if last.Verb != "" {
			command = string(last.Verb) + ": " + command
		}
	}
	return []any{
		s.ID, s.Claim, s.Pod, s.Container, s.Process, s.State, duration.HumanDuration(time.Since(s.Since)), command,
		duration.HumanDuration(time.Since(s.Started)), s.Node, made, message,
	}
}
