// Package cli is the command kubectl prism, a plugin of kubectl.
package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/prism-gpu/prism/pkg/cli/gpus"
	"github.com/prism-gpu/prism/pkg/cli/profile"
	"github.com/prism-gpu/prism/pkg/cli/reports"
	"github.com/prism-gpu/prism/pkg/cli/validate"
)

// Command returns the command kubectl prism. The caller prints its errors.
func Command(version string, streams genericiooptions.IOStreams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	command := &cobra.Command{
		Use:           "kubectl-prism",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl prism"},
		Short:         "Show GPUs and explain why pods wait for them, manage and validate GPUs, and profile processes of ResourceClaims",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.SetIn(streams.In)
	command.SetOut(streams.Out)
	command.SetErr(streams.ErrOut)
	flags.AddFlags(command.PersistentFlags())
	command.AddCommand(gpus.Command(flags, streams), profile.Command(flags, streams), validate.Command(flags, streams))
	command.AddCommand(gpus.Views(flags, streams)...)
	return command
}

// The exit status of kubectl prism.
const (
	statusError = 1
	// statusDoesNotFit is the status of kubectl prism explain for a pod or claim that fits on no node.
	statusDoesNotFit = 3
)

// Status returns the exit status for the error of the command, and prints the error.
func Status(err error, errOut io.Writer) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, gpus.ErrDoesNotFit):
		return statusDoesNotFit
	}
	_, _ = fmt.Fprintf(errOut, "error: %s\n", reports.Escape(err.Error()))
	return statusError
}
