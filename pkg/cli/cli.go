// Package cli is the command kubectl prism, a plugin of kubectl.
package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/prism-gpu/prism/pkg/cli/gpus"
	"github.com/prism-gpu/prism/pkg/cli/profile"
	"github.com/prism-gpu/prism/pkg/cli/validate"
)

// Command returns the command kubectl prism. The caller prints its errors.
func Command(version string, streams genericiooptions.IOStreams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	command := &cobra.Command{
		Use:           "kubectl-prism",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl prism"},
		Short:         "Manage and validate GPUs, and reports of profiled processes of ResourceClaims",
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
	return command
}
