package profile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/cli/download"
	"github.com/prism-gpu/prism/pkg/cli/reports"
)

// fetching are the flags of download.
type fetching struct {
	selection
	dir                 string
	force, removeSource bool
	names               []string
}

func downloadCommand(c cluster) *cobra.Command {
	var f fetching
	command := &cobra.Command{
		Use:   "download [NAME...]",
		Short: "Download and verify reports",
		Long: "Downloads reports by name or by flags that select them. An interrupted download resumes: partial data is kept in a " +
			"file with the extension .part. Each report is verified with the sha256 from its node. A report that exists is not downloaded " +
			"again; a different file of the same name is only overwritten with --force. If several reports use one file name, their names are " +
			"added to it. Reports of output type ContainerPath are copied from their container, as kubectl cp does, while it runs.",
		Example: "  kubectl prism profile download 1a2b3c4d-x7\n" +
			"  kubectl prism profile download --pod train --output reports/\n" +
			"  kubectl prism profile download -l gpu.prism.dev/claim=train --remove-source",
		RunE: func(command *cobra.Command, names []string) error {
			f.names = names
			client, list, err := f.choose(command, c, names)
			if err != nil {
				return err
			}
			c.missing(client, ofReports, list.SilentNodes, list.TruncatedNodes)
			return f.run(command.Context(), c, client, list)
		},
	}
	f.bind(command.Flags(), ofReports)
	command.Flags().BoolVar(&f.all, "all", false, "All reports of the namespace.")
	command.Flags().StringVarP(&f.dir, "output", "O", ".", "Directory to write to; it is created if it does not exist.")
	command.Flags().BoolVar(&f.force, "force", false, "Overwrite other files of the same names.")
	command.Flags().BoolVar(&f.removeSource, "remove-source", false, "Remove each report from its node after it is downloaded and verified.")
	return command
}

// run downloads reports one after the other; a failure does not stop the other downloads.
func (f *fetching) run(ctx context.Context, c cluster, client *reports.Client, list *v1alpha1.ReportList) error {
	wanted, failed := f.complete(c, list.Items)
	if len(wanted) == 0 {
		return f.outcome(failed, len(list.Items))
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return fmt.Errorf("creating directory %s: %w; choose another with --output", f.dir, err)
	}
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return fmt.Errorf("opening directory %s: %w; choose another with --output", f.dir, err)
	}
	defer func() { _ = root.Close() }()
	bar := newProgress(c.ErrOut)
	downloads := &download.Downloads{
		Source: source{client, containers{c}}, Dir: root, Root: f.dir, Force: f.force,
		Again: func(err error) bool { return errors.Is(err, reports.ErrRetry) }, Wait: time.Second, Progress: bar.show,
	}
	names := download.Names(wanted)
	for i := range wanted {
		if ctx.Err() != nil {
			return errors.New("interrupted; run the same command again to resume")
		}
		if err := f.one(ctx, c, client, downloads, bar, &wanted[i], names[i]); err != nil {
			failed++
			c.say("error: %v", err)
		}
	}
	return f.outcome(failed, len(list.Items))
}

func (f *fetching) outcome(failed, of int) error {
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d reports were not downloaded", failed, of)
}

// one downloads one report, and removes it from its node if requested.
func (f *fetching) one(
	ctx context.Context, c cluster, client *reports.Client, downloads *download.Downloads, bar *progress, r *v1alpha1.Report, name string,
) error {
	outcome, verified, err := downloads.Fetch(ctx, r, name)
	bar.clear()
	if err != nil {
		return err
	}
	file := filepath.Join(f.dir, name)
	check := "sha256 verified"
	if !verified {
		check = "not verified: the node does not store the sha256 of reports in containers"
		if info, err := os.Stat(file); err == nil { // nor their size: the container sent it
			check = fmt.Sprintf("%d bytes, %s", info.Size(), check)
		}
	}
	switch outcome {
	case download.Downloaded:
		c.print("%s: report %s downloaded, %s", file, r.Name, check)
	case download.Resumed:
		c.print("%s: report %s downloaded, resumed an earlier download, %s", file, r.Name, check)
	case download.Present:
		c.print("%s: report %s already exists, %s", file, r.Name, check)
	}
	switch {
	case !f.removeSource:
		return nil
	case !verified:
		c.say("Report %s is kept on its node: it could not be verified", r.Name)
		return nil
	}
	if err := client.Delete(ctx, r.Namespace, r.Name); err != nil {
		return fmt.Errorf("removing the source: %w", err)
	}
	c.print("report.%s %q of namespace %s removed", reports.GroupVersion.Group, r.Name, r.Namespace)
	return nil
}

// complete returns the reports that can be downloaded, and the number of the other named reports.
func (f *fetching) complete(c cluster, all []v1alpha1.Report) (wanted []v1alpha1.Report, refused int) {
	for i := range all {
		r := &all[i]
		why := ""
		switch r.Status.State {
		case "Ready", "Raw":
			wanted = append(wanted, *r)
			continue
		case "Recording":
			why = "it is Recording: it is complete when its process exits or the recording ends"
		case "Importing":
			why = "it is Importing: it is complete in a few minutes"
		case "Lost":
			why = "it is Lost, without a file"
			if r.Status.Reason != "" {
				why += ": " + r.Status.Reason
			}
			if r.Status.Message != "" {
				why += " (" + r.Status.Message + ")"
			}
		default:
			why = fmt.Sprintf("its state %s is unknown to this version of kubectl-prism", r.Status.State)
		}
		if len(f.names) == 0 {
			c.say("Report %s of namespace %s is skipped: %s", r.Name, r.Namespace, why)
			continue
		}
		refused++
		c.say("error: report %s of namespace %s cannot be downloaded: %s", r.Name, r.Namespace, why)
	}
	return wanted, refused
}
