//go:build linux

// The localcluster command runs real Kubernetes clusters in namespaces.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/prism-gpu/prism/hack/localcluster/cluster"
	"github.com/prism-gpu/prism/hack/localcluster/report"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == cluster.InitCommand {
		exit(cluster.Init(os.Args[2]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	exit(err)
}

// exit prints the error as one message and exits.
func exit(err error) {
	if err == nil {
		os.Exit(0)
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = fmt.Errorf("%w: free some space, or set XDG_STATE_HOME and XDG_CACHE_HOME to another disk", err)
	}
	fmt.Fprintln(os.Stderr, "localcluster:", err)
	os.Exit(1)
}

// session is the state that all commands share.
type session struct {
	name     string
	progress *report.Progress
}

func newRoot() *cobra.Command {
	s := &session{progress: report.New(os.Stderr)}
	root := &cobra.Command{
		Use:              "localcluster",
		Short:            "Real Kubernetes clusters on one Linux machine, without Docker and without images",
		SilenceErrors:    true,
		SilenceUsage:     true,
		TraverseChildren: true,
		Args:             cobra.NoArgs,
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().StringVar(&s.name, "name", "default", "name of the cluster")
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(s.up(), s.down(), s.status(), s.build(), s.fetch(), s.env(), s.loadImage(), s.reboot(), s.exec(), s.logs(), s.image(),
		s.order("restart", "Stop a component and start it again"), s.order("stop", "Stop a component"), s.order("start", "Start a component"),
		s.passThrough("kubectl"), s.passThrough("helm"))
	return root
}

// cluster opens the cluster of the command line.
func (s *session) cluster() (*cluster.Cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("this needs root (namespaces, mounts): run it with sudo or as root")
	}
	return cluster.Open(s.name)
}
