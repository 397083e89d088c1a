package profile

import (
	"cmp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/reports"
)

func sessionsCommand(c cluster) *cobra.Command {
	l := listing{things: sessions}
	command := &cobra.Command{
		Use:   "sessions",
		Short: "List processes that wait for a recording",
		Long: "Lists the sessions of a namespace: processes that wait until kubectl prism profile start records them, because the ProfilerConfig of " +
			"their claim has start: Manual. It prints their state and the last command for each, and which claims with arm: OnDemand are armed.",
		Example: "  kubectl prism profile sessions\n" +
			"  kubectl prism profile sessions -A --node node-1 -o wide\n" +
			"  kubectl prism profile sessions --pod train --field-selector status.state=Recording -o name",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return l.run(c, func(client *reports.Client, namespace string) (*contents, error) {
				list, err := client.ListSessions(command.Context(), namespace, l.Selection)
				if err != nil {
					return nil, err
				}
				slices.SortStableFunc(list.Items, func(a, b v1alpha1.Session) int {
					return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
				})
				tables := []*metav1.Table{sessionTable(list, l.allNamespaces, time.Now()), armedTable(list, l.allNamespaces)}
				return &contents{list, list.SilentNodes, list.TruncatedNodes, tables, c.noSessions}, nil
			})
		},
	}
	l.bind(command)
	return command
}

// sessionTable returns a row for each session.
func sessionTable(list *v1alpha1.SessionList, allNamespaces bool, now time.Time) *metav1.Table {
	t := newTable(allNamespaces,
		[]string{"Name", "Claim", "Pod", "Container", "Process", "State", "Since", "Last command"}, []string{"Node", "PID", "Tool", "Report", "Message"})
	for i := range list.Items {
		s := &list.Items[i]
		last, report, message := "", "", ""
		if c := s.Status.LastCommand; c != nil {
			last, report, message = string(c.Verb)+": "+c.Outcome, c.Report, c.Message
			if c.Verb == "" {
				last = c.Outcome
			}
		}
		t.row(s.Namespace, s.Name, s.Spec.Claim, s.Spec.Pod, s.Spec.Container, s.Spec.Process, s.Status.State, age(s.Status.Since, now), last,
			s.Spec.Node, number(s.Spec.PID), s.Spec.Tool, report, message)
	}
	return &t.Table
}

// armedTable returns a row for each claim with arm: OnDemand.
func armedTable(list *v1alpha1.SessionList, allNamespaces bool) *metav1.Table {
	t := newTable(allNamespaces, []string{"Claim", "Armed"}, nil)
	for _, claim := range list.Claims {
		armed := "no"
		if claim.Armed {
			armed = "yes"
		}
		t.row(claim.Namespace, claim.Claim, armed)
	}
	return &t.Table
}

// noSessions prints that there are no sessions.
func (c cluster) noSessions(namespace string) {
	where := ""
	if namespace != "" {
		where = " in namespace " + namespace
	}
	c.say("No sessions found%s; processes of claims with start: Manual wait for recordings; to see why a process does not, run: "+
		"kubectl prism profile check POD", where)
}
