package profile

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/reports"
)

// Command returns the command kubectl prism profile. The flags select the cluster, the user and the namespace.
func Command(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	command := &cobra.Command{
		Use:   "profile",
		Short: "Manage reports of profiled processes, and record processes that wait",
		Long: "Lists, downloads and removes reports of processes that were profiled because of the ProfilerConfig of a ResourceClaim or DeviceClass, " +
			"even after the pod and the claim are deleted, checks whether the processes of a pod are profiled, and starts and ends recordings of " +
			"processes that wait.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	c := cluster{flags, streams}
	command.AddCommand(listCommand(c), downloadCommand(c), removeCommand(c), checkCommand(c), sessionsCommand(c))
	command.AddCommand(recordCommands(c)...)
	return command
}

// cluster contains the connection of commands and their output.
type cluster struct {
	flags *genericclioptions.ConfigFlags
	genericiooptions.IOStreams
}

// reports returns the client of the API of reports, and the namespace of the flags or of the kubeconfig.
func (c cluster) reports() (*reports.Client, string, error) {
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("loading the namespace: %w; correct --kubeconfig or --context", err)
	}
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, "", fmt.Errorf("loading the kubeconfig: %w; set --kubeconfig, or KUBECONFIG", err)
	}
	client, err := reports.New(config)
	return client, namespace, err
}

// say writes a message to stderr, escaped because values may come from containers.
func (c cluster) say(format string, values ...any) {
	_, _ = fmt.Fprintln(c.ErrOut, reports.Escape(fmt.Sprintf(format, values...)))
}

// print writes a line of the result.
func (c cluster) print(format string, values ...any) {
	_, _ = fmt.Fprintln(c.Out, reports.Escape(fmt.Sprintf(format, values...)))
}

// missing warns about the reports or sessions that are missing from a list.
func (c cluster) missing(client *reports.Client, things string, silent, truncated []string) {
	taken := client.Warnings()
	if len(silent)+len(truncated) == 0 {
		for _, text := range taken {
			c.say("Warning: %s", text)
		}
		return
	}
	if len(silent) > 0 {
		c.say("Warning: %s did not answer: their %s are missing from the list; profiling continues there", reports.Nodes(silent), things)
	}
	if len(truncated) > 0 {
		remedy := "delete some there"
		if things == sessions {
			remedy = "select fewer"
		}
		c.say("Warning: the list does not contain all %s of %s: %s, or name the %s", things, reports.Nodes(truncated), remedy, things)
	}
}

// The things that commands select.
const (
	ofReports = "reports"
	sessions  = "sessions"
)

// selection contains the flags that select reports or sessions.
type selection struct {
	reports.Selection
	allNamespaces, all bool
}

// bind adds the flags. Several commands require one of them or names.
func (s *selection) bind(flags *pflag.FlagSet, things string) {
	state := "Ready"
	if things == sessions {
		state = "Waiting"
	}
	of := strings.ToUpper(things[:1]) + things[1:] + " of "
	flags.BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, of+"all namespaces.")
	flags.StringVarP(&s.Labels, "selector", "l", "", "Label selector, such as gpu.prism.dev/pod=train.")
	flags.StringVar(&s.Fields, "field-selector", "", "Field selector, such as status.state="+state+"; fields are metadata.name, metadata.namespace, "+
		"spec.claim, spec.claimUID, spec.pod, spec.container, spec.node, spec.process and status.state.")
	flags.StringVar(&s.Claim, "claim", "", of+"this ResourceClaim.")
	flags.StringVar(&s.Pod, "pod", "", of+"this pod.")
	flags.StringVar(&s.Container, "container", "", of+"containers of this name.")
	flags.StringVar(&s.Process, "process", "", of+"programs of this base name.")
	flags.StringVar(&s.Node, "node", "", of+"this node.")
}

// check returns an error unless either names or flags select something.
func (s *selection) check(command *cobra.Command, things string, names []string) error {
	selected := !s.Empty() || s.all
	switch {
	case len(names) == 0 && !selected:
		return fmt.Errorf("no %s are selected: specify names of %s, flags such as --pod or -l, or --all; %s -h lists the flags",
			things, things, command.CommandPath())
	case len(names) > 0 && (selected || s.allNamespaces):
		return fmt.Errorf("names of %s and flags that select them are mutually exclusive", things)
	}
	return nil
}

// choose returns the named or selected reports, and the nodes that did not answer. Either names or a selection are required.
func (s *selection) choose(command *cobra.Command, c cluster, names []string) (*reports.Client, *v1alpha1.ReportList, error) {
	if err := s.check(command, ofReports, names); err != nil {
		return nil, nil, err
	}
	client, namespace, err := c.reports()
	if err != nil {
		return nil, nil, err
	}
	if s.allNamespaces {
		namespace = ""
	}
	if len(names) == 0 {
		list, err := client.List(command.Context(), namespace, s.Selection)
		if err == nil && len(list.Items) == 0 {
			c.none(namespace)
		}
		return client, list, err
	}
	list, err := named(command.Context(), client, namespace, names)
	return client, list, err
}

// named returns the reports of these names, each once.
func named(ctx context.Context, client *reports.Client, namespace string, names []string) (*v1alpha1.ReportList, error) {
	list := &v1alpha1.ReportList{}
	for _, name := range names {
		name, err := plainName(reportName, name)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list.Items, func(r v1alpha1.Report) bool { return r.Name == name }) {
			continue
		}
		report, err := client.Get(ctx, namespace, name)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, *report)
	}
	return list, nil
}

// kind is a kind of objects that are named on the command line.
type kind struct{ singular, group, list string }

var (
	reportName  = kind{"report", reports.GroupVersion.Group, "kubectl prism profile list"}
	sessionName = kind{"session", reports.GroupVersion.Group, "kubectl prism profile sessions"}
	claimName   = kind{"resourceclaim", "resource.k8s.io", "kubectl get resourceclaims"}
)

// plainName parses a name in the format of -o name.
func plainName(of kind, name string) (string, error) {
	before, plain, found := strings.Cut(name, "/")
	if !found {
		plain = name
	} else if !slices.Contains([]string{of.singular, of.singular + "s", of.singular + "." + of.group, of.singular + "s." + of.group}, before) {
		return "", fmt.Errorf("%q is not a %s; %s prints the names", name, of.singular, of.list)
	}
	if len(validation.IsDNS1123Subdomain(plain)) > 0 {
		return "", fmt.Errorf("%q is not the name of a %s; %s prints the names", name, of.singular, of.list)
	}
	return plain, nil
}

// none prints that there are no reports.
func (c cluster) none(namespace string) {
	if namespace == "" {
		c.say("No reports found; to see why, run: kubectl get events -A --field-selector reason=ProfileIncomplete")
		return
	}
	c.say("No reports found in namespace %s; to see why, run: kubectl get events -n %s --field-selector reason=ProfileIncomplete", namespace, namespace)
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && terminal(file)
}
