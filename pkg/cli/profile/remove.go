package profile

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/prism-gpu/prism/pkg/cli/reports"
)

func removeCommand(c cluster) *cobra.Command {
	var chosen selection
	command := &cobra.Command{
		Use:   "rm [NAME...]",
		Short: "Remove reports from their nodes",
		Long: "Removes reports by name or by flags that select them, and prints each removed report. Reports of running processes are kept: they are " +
			"complete when their process exits. A report in a container is only removed from the list; its file stays in the container.",
		Example: "  kubectl prism profile rm 1a2b3c4d-x7\n" +
			"  kubectl prism profile rm --claim train --field-selector status.state=Lost",
		RunE: func(command *cobra.Command, names []string) error {
			client, list, err := chosen.choose(command, c, names)
			if err != nil {
				return err
			}
			c.missing(client, ofReports, list.SilentNodes, list.TruncatedNodes)
			failed := 0
			for i := range list.Items {
				r := &list.Items[i]
				err := client.Delete(command.Context(), r.Namespace, r.Name)
				switch {
				case err == nil:
					c.print("report.%s %q of namespace %s removed", reports.GroupVersion.Group, r.Name, r.Namespace)
				case errors.Is(err, reports.ErrNotComplete) && len(names) == 0:
					c.say("Report %s of namespace %s is kept: it is %s", r.Name, r.Namespace, r.Status.State)
				default:
					failed++
					c.say("error: %v", err)
				}
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d reports were not removed", failed, len(list.Items))
			}
			return nil
		},
	}
	chosen.bind(command.Flags(), ofReports)
	command.Flags().BoolVar(&chosen.all, "all", false, "All reports of the namespace.")
	return command
}
